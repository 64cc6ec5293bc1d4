// The extension samara._replica: the replicator for torch users, on lists of tensors. Nests, and
// everything else that reads better in Python, are in samara/replica/.
//
// The interpreter's lock is released wherever a call may wait for other replicas or ranks, and
// taken where one of them runs Python: a step on its own thread, an update, a merge.
#include "torch_python.h"
// after the door
#include <frameobject.h>
#include <torch/csrc/Exceptions.h>

#include <unordered_map>
#include <unordered_set>

#include "replica/torch/checkpoint_file.h"
#include "replica/torch/reducer.h"
#include "replica/torch/state.h"
#include "samara/batch_norm.h"
#include "samara/replicator.h"

namespace py = pybind11;

namespace samara {
namespace {

// --- call sites

std::vector<std::string> skipped_folders;  // files of samara's and torch's own packages

// Strings that live as long as the program: code objects may not.
const char* Interned(const std::string& text) {
  static auto* all = new std::unordered_set<std::string>();
  return all->insert(text).first->c_str();
}

// The innermost Python frame that belongs to the user.
Site CallSite() {
  // by the name's object, which code objects of one file share: alive, so that none takes its place
  struct File {
    py::object name;
    const char* text;  // null: skipped
  };
  static auto* files = new std::unordered_map<PyObject*, File>();
  auto frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame) {
    auto* const raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    PyCodeObject* const code = PyFrame_GetCode(raw);
    const auto hold = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(code));
    auto it = files->find(code->co_filename);
    if (it == files->end()) {
      const auto name = py::reinterpret_borrow<py::object>(code->co_filename);
      const auto text = name.cast<std::string>();
      bool skip = false;
      for (const std::string& folder : skipped_folders) skip = skip || text.starts_with(folder);
      it = files->emplace(code->co_filename, File{name, skip ? nullptr : Interned(text)}).first;
    }
    if (it->second.text != nullptr) {
      int line = 0, column = 0, end_line = 0, end_column = 0;
      if (PyCode_Addr2Location(code, PyFrame_GetLasti(raw), &line, &column, &end_line,
                               &end_column) == 0) {
        line = PyFrame_GetLineNumber(raw);
      }
      return {it->second.text, static_cast<uint32_t>(std::max(line, 0)),
              static_cast<uint32_t>(std::max(column, -1) + 1)};
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return {"<python>", 0, 0};
}

// --- exceptions

PyObject* replication_error = nullptr;  // samara._replica.ReplicationError, for ever

void Raise(const ReplicationError& error) {
  const py::object type = py::reinterpret_borrow<py::object>(replication_error);
  const py::object value = type(error.exit_code(), error.what());
  PyErr_SetObject(replication_error, value.ptr());
}

// Torch's own way for Python's exceptions through C++.
void RaiseInAutograd(const ReplicationError& error) {
  const py::gil_scoped_acquire lock;
  Raise(error);
  python_error raised;
  raised.persist();
  throw raised;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// An exception of Python code on its way through C++ to the calling Python code.
class PythonThrew : public std::runtime_error {
 public:
  PythonThrew(const std::string& line, std::shared_ptr<py::error_already_set> error)
      : std::runtime_error(line), error_(std::move(error)) {}
  const py::error_already_set& error() const { return *error_; }

 private:
  std::shared_ptr<py::error_already_set> error_;
};

// Runs Python code under the lock. What it raises becomes a C++ exception that says so in one line.
template <typename Fn>
auto CallPython(Fn&& fn) {
  const py::gil_scoped_acquire lock;
  try {
    return fn();
  } catch (py::error_already_set& error) {
    const std::shared_ptr<py::error_already_set> shared(new py::error_already_set(error),
                                                        [](py::error_already_set* e) {
                                                          const py::gil_scoped_acquire again;
                                                          delete e;
                                                        });
    if (error.matches(replication_error)) {
      const py::object value = error.value();
      throw ReplicationError(value.attr("exit_code").cast<int>(), py::str(value));
    }
    throw PythonThrew(FirstLine(error.what()), shared);
  }
}

// Runs C++ that may wait, without the lock.
template <typename Fn>
auto Unlocked(Fn&& fn) {
  const py::gil_scoped_release release;
  return fn();
}

// The same of C++ that runs Python: what that raised is raised again, of its type.
template <typename Fn>
auto Raising(Fn&& fn) {
  try {
    return Unlocked(fn);
  } catch (const PythonThrew& threw) {
    throw py::error_already_set(threw.error());
  }
}

// --- the objects

struct PyReplicator {
  explicit PyReplicator(Replicator made)
      : replicator(std::make_unique<Replicator>(std::move(made))) {}
  PyReplicator(Replicator* borrowed, int) : program(borrowed) {}
  ~PyReplicator() {
    // its threads end, and tensors that Python knows
    const py::gil_scoped_release release;
    replicator.reset();
  }
  Replicator& get() {
    Replicator* const r = replicator ? replicator.get() : program;
    if (r == nullptr) throw ReplicationError(78, "the program of this replicator has ended");
    return *r;
  }
  std::unique_ptr<Replicator> replicator;
  Replicator* program = nullptr;  // of samara::Replicate, while it runs
};

struct PyReducer {
  std::shared_ptr<GradientReducer> reducer;
  ~PyReducer() {
    const py::gil_scoped_release release;
    reducer.reset();
  }
};

struct NoSync {
  std::shared_ptr<void> token;
};

template <typename T>
std::optional<T> Maybe(const py::dict& options, const char* name) {
  if (!options.contains(name) || options[name].is_none()) return std::nullopt;
  return options[name].cast<T>();
}

ReplicatorOptions OptionsOf(const py::dict& given) {
  ReplicatorOptions options;
  if (const auto mode = Maybe<std::string>(given, "mode")) {
    if (*mode != "exact" && *mode != "fast")
      throw ReplicationError(78, "mode " + *mode + ": expected exact or fast");
    options.mode = *mode == "fast" ? ReplicationMode::kFast : ReplicationMode::kExact;
  }
  options.replicas = Maybe<int>(given, "replicas");
  options.transport = Maybe<std::string>(given, "transport");
  options.deadline_s = Maybe<double>(given, "deadline_s");
  options.trace = Maybe<std::string>(given, "trace");
  options.seed = Maybe<uint64_t>(given, "seed").value_or(options.seed);
  options.threads = Maybe<int>(given, "threads").value_or(options.threads);
  options.check_every = Maybe<int>(given, "check_every").value_or(options.check_every);
  return options;
}

WrapOptions WrapOptionsOf(const py::dict& given) {
  WrapOptions options;
  options.clip_norm = Maybe<double>(given, "clip_norm").value_or(options.clip_norm);
  options.shard_state = Maybe<bool>(given, "shard_state").value_or(options.shard_state);
  options.bf16 = Maybe<bool>(given, "bf16").value_or(options.bf16);
  options.bucket_bytes = Maybe<size_t>(given, "bucket_bytes").value_or(options.bucket_bytes);
  options.overlap = Maybe<bool>(given, "overlap").value_or(options.overlap);
  options.step_by_bucket = Maybe<bool>(given, "step_by_bucket").value_or(options.step_by_bucket);
  options.nonfinite_max = Maybe<int>(given, "nonfinite_max").value_or(options.nonfinite_max);
  return options;
}

ReduceOp OpOf(const std::string& name) {
  for (const auto& [op, text] :
       std::initializer_list<std::pair<ReduceOp, const char*>>{{ReduceOp::kSum, "sum"},
                                                               {ReduceOp::kMean, "mean"},
                                                               {ReduceOp::kMin, "min"},
                                                               {ReduceOp::kMax, "max"},
                                                               {ReduceOp::kProduct, "product"}}) {
    if (name == text) return op;
  }
  throw ReplicationError(78, name + ": expected sum, mean, min, max or product");
}

InputMode ModeOf(const std::string& name) {
  if (name == "per_replica") return InputMode::kPerReplica;
  if (name == "per_worker") return InputMode::kPerWorker;
  if (name == "single") return InputMode::kSingle;
  throw ReplicationError(78, "input mode " + name + ": expected per_replica, per_worker or single");
}

// The step of every local replica; what a step raised comes out as it was raised.
void RunBodies(PyReplicator& self, const std::vector<int64_t>& samples, const py::function& body,
               std::optional<int64_t> whole_batch) {
  Raising([&] {
    self.get().RunBodies(
        samples,
        [&](int local) {
          CallPython([&] {
            ReplicaContext context(self.get().state(), local);
            const py::object shown = py::cast(&context, py::return_value_policy::reference);
            body(local, shown);
          });
        },
        whole_batch);
  });
}

std::shared_ptr<PyReducer> MakeReducer(PyReplicator& self, std::vector<torch::Tensor> parameters,
                                       std::vector<torch::Tensor> buffers, const py::dict& given,
                                       const py::function& update) {
  const WrapOptions options = WrapOptionsOf(given);
  const Site site = CallSite();
  const std::shared_ptr<py::function> held(new py::function(update), [](py::function* f) {
    const py::gil_scoped_acquire lock;
    delete f;
  });
  auto made = std::make_shared<PyReducer>();
  made->reducer = Unlocked([&] {
    return GradientReducer::Make(
        self.get().state(), std::move(parameters), std::move(buffers), options,
        [held](const std::vector<size_t>& used) { CallPython([&] { (*held)(used); }); }, site);
  });
  return made;
}

// Runs `program` on n threads, each a rank of its own.
int Threads(int ranks, const py::function& program, const py::dict& given) {
  const ReplicatorOptions options = OptionsOf(given);
  return Unlocked([&] {
    return ReplicateThreads(
        ranks,
        [&](Replicator& replicator) {
          CallPython([&] {
            const auto shown = std::make_shared<PyReplicator>(&replicator, 0);
            struct End {
              PyReplicator& shown;
              ~End() { shown.program = nullptr; }
            } end{*shown};
            program(shown);
          });
        },
        options);
  });
}

using SubGroups = ReplicaContext::SubGroups;

void BindContext(py::module_& m) {
  const auto id = [](auto method) {
    return [method](const ReplicaContext& c) { return (c.*method)(); };
  };
  py::class_<ReplicaContext>(m, "ReplicaContext")
      .def_property_readonly("replica_id", id(&ReplicaContext::replica_id))
      .def_property_readonly("num_replicas", id(&ReplicaContext::num_replicas))
      .def_property_readonly("rank", id(&ReplicaContext::rank))
      .def_property_readonly("world_size", id(&ReplicaContext::world_size))
      .def_property_readonly("step", id(&ReplicaContext::step))
      .def_property_readonly("samples", id(&ReplicaContext::samples))
      .def("set_samples", &ReplicaContext::SetSamples)
      .def("logical_device",
           [](const ReplicaContext& c, int i) { return c.logical_device(i).str(); })
      .def("reduce",
           [](const ReplicaContext& c, const Leaves& in, const std::string& op,
              const std::string& structure) {
             const Site site = CallSite();
             return Unlocked([&] { return c.Reduce(in, OpOf(op), structure, site); });
           })
      .def("stack",
           [](const ReplicaContext& c, const Leaves& in, const std::string& structure) {
             const Site site = CallSite();
             return Unlocked([&] { return c.Stack(in, structure, site); });
           })
      .def("all_gather_along",
           [](const ReplicaContext& c, const torch::Tensor& in, int64_t dim) {
             const Site site = CallSite();
             return Unlocked([&] { return c.AllGatherAlong(in, dim, site); });
           })
      .def("broadcast",
           [](const ReplicaContext& c, const Leaves& in, int source, const std::string& structure) {
             const Site site = CallSite();
             return Unlocked([&] { return c.BroadcastLeaves(in, source, structure, site); });
           })
      .def("reduce_scatter",
           [](const ReplicaContext& c, const torch::Tensor& in, const std::string& op) {
             const Site site = CallSite();
             return Unlocked([&] { return c.ReduceScatter(in, OpOf(op), site); });
           })
      .def("all_to_all",
           [](const ReplicaContext& c, const torch::Tensor& in) {
             const Site site = CallSite();
             return Unlocked([&] { return c.AllToAll(in, site); });
           })
      .def("send", [](const ReplicaContext& c, const Leaves& in,
                      int to) { Unlocked([&] { c.SendLeaves(in, to); }); })
      .def("receive",
           [](const ReplicaContext& c, int from, const Leaves& like) {
             return Unlocked([&] { return c.ReceiveLeaves(from, like); });
           })
      .def("exchange_items",
           [](const ReplicaContext& c, std::vector<Leaves> mine, size_t items) {
             const Site site = CallSite();
             return Unlocked([&] { return c.ExchangeItems(std::move(mine), items, site); });
           })
      .def("merge",
           [](const ReplicaContext& c, const Leaves& in, const py::function& fn,
              const std::string& structure) {
             const Site site = CallSite();
             const auto merge = [&](const std::vector<Leaves>& all) {
               return CallPython([&] { return fn(all).cast<Leaves>(); });
             };
             return Raising([&] { return c.Merge(in, merge, structure, site); });
           })
      .def(
          "within",
          [](const ReplicaContext& c, std::vector<std::vector<int>> groups) {
            return std::make_unique<SubGroups>(c, std::move(groups));
          },
          py::keep_alive<0, 1>());

  py::class_<SubGroups>(m, "SubGroups")
      .def_property_readonly("size", &SubGroups::size)
      .def_property_readonly("index", &SubGroups::index)
      .def("reduce",
           [](const SubGroups& g, const Leaves& in, const std::string& op,
              const std::string& structure) {
             const Site site = CallSite();
             return Unlocked([&] { return g.ReduceWithin(in, OpOf(op), structure, site); });
           })
      .def("stack",
           [](const SubGroups& g, const Leaves& in, const std::string& structure) {
             const Site site = CallSite();
             return Unlocked([&] { return g.StackWithin(in, structure, site); });
           })
      .def("broadcast",
           [](const SubGroups& g, const Leaves& in, int source, const std::string& structure) {
             const Site site = CallSite();
             return Unlocked([&] { return g.BroadcastWithin(in, source, structure, site); });
           });
}

void BindBatchNorm(py::module_& m) {
  // `context`: None outside steps
  m.def("batch_norm",
        [](const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
           const torch::Tensor& running_mean, const torch::Tensor& running_var, bool training,
           double eps, double momentum, const ReplicaContext* context) {
          const Site site = CallSite();
          return Unlocked([&] {
            return CrossReplicaNormalise(x, {weight, bias, running_mean, running_var}, training,
                                         {eps, momentum}, context, site);
          });
        });
}

void BindReplicator(py::module_& m) {
  py::class_<PyReplicator, std::shared_ptr<PyReplicator>>(m, "Replicator")
      .def_static("from_environment",
                  [](const py::dict& given) {
                    const ReplicatorOptions options = OptionsOf(given);
                    Replicator made =
                        Unlocked([&] { return Replicator::FromEnvironment(options); });
                    return std::make_shared<PyReplicator>(std::move(made));
                  })
      .def_property_readonly("rank", [](PyReplicator& r) { return r.get().rank(); })
      .def_property_readonly("world_size", [](PyReplicator& r) { return r.get().world_size(); })
      .def_property_readonly("num_replicas", [](PyReplicator& r) { return r.get().num_replicas(); })
      .def_property_readonly("local_replicas",
                             [](PyReplicator& r) { return r.get().local_replicas(); })
      .def_property_readonly("first_replica",
                             [](PyReplicator& r) { return r.get().first_replica(); })
      .def_property_readonly("mode",
                             [](PyReplicator& r) {
                               return r.get().mode() == ReplicationMode::kExact ? "exact" : "fast";
                             })
      .def_property_readonly(
          "transport",
          [](PyReplicator& r) { return Unlocked([&] { return r.get().transport(); }); })
      .def_property(
          "step", [](PyReplicator& r) { return r.get().step(); },
          [](PyReplicator& r, int64_t step) { r.get().SetStep(step); })
      .def("run_bodies", &RunBodies)
      .def("shape",
           [](PyReplicator& r, const std::string& mode) {
             const InputShape shape = r.get().Shape(ModeOf(mode));
             py::list pipelines;
             for (const InputContext& c : shape.pipelines) pipelines.append(c);
             return py::make_tuple(pipelines, shape.batches);
           })
      .def("share_of", [](PyReplicator& r, const Leaves& whole,
                          int replica) { return r.get().ShareOf(whole, replica); })
      .def("share_batches",
           [](PyReplicator& r, const std::string& mode, std::vector<std::optional<Leaves>> batches,
              std::optional<Leaves> last) -> py::object {
             const Site site = CallSite();
             const bool any =
                 Unlocked([&] { return r.get().ShareBatches(ModeOf(mode), batches, last, site); });
             return any ? py::cast(std::make_pair(batches, last)) : py::none();
           })
      .def("reduce",
           [](PyReplicator& r, const std::vector<Leaves>& locals, const std::string& op,
              const std::string& structure) {
             const Site site = CallSite();
             return Unlocked(
                 [&] { return r.get().ReduceLocals(locals, OpOf(op), structure, site); });
           })
      .def("mean",
           [](PyReplicator& r, const std::vector<Leaves>& locals, const std::string& structure) {
             const Site site = CallSite();
             return Unlocked([&] { return r.get().MeanLocals(locals, structure, site); });
           })
      .def("broadcast",
           [](PyReplicator& r, const Leaves& in, const std::string& structure) {
             const Site site = CallSite();
             return Unlocked([&] { return r.get().BroadcastMain(in, structure, site); });
           })
      .def("barrier",
           [](PyReplicator& r) {
             const Site site = CallSite();
             Unlocked([&] { r.get().Barrier(site); });
           })
      .def("abort", [](PyReplicator& r, const std::string& why,
                       int exit_code) { Unlocked([&] { r.get().Abort(why, exit_code); }); })
      .def("shutdown",
           [](PyReplicator& r) {
             const Site site = CallSite();
             Unlocked([&] { r.get().Shutdown(site); });
           })
      .def("chrome_trace",
           [](PyReplicator& r) { return Unlocked([&] { return r.get().ChromeTrace(); }); })
      .def("write_checkpoint",
           [](PyReplicator& r, const std::string& path, const Entries& shared, const Entries& own,
              const Metadata& metadata) {
             const Site site = CallSite();
             Unlocked([&] { WriteCheckpoint(r.get(), path, {shared, own}, metadata, site); });
           })
      .def("read_checkpoint", [](PyReplicator& r, const std::string& path) -> py::object {
        const Site site = CallSite();
        const auto file = Unlocked([&] { return ReadCheckpoint(r.get(), path, site); });
        if (!file) return py::none();
        return py::make_tuple(file->entries, file->metadata, file->step);
      });
}

void BindReducer(py::module_& m) {
  py::class_<NoSync>(m, "NoSync").def("release", [](NoSync& n) { n.token.reset(); });
  py::class_<PyReducer, std::shared_ptr<PyReducer>>(m, "GradientReducer")
      .def(py::init(&MakeReducer), py::keep_alive<1, 2>())
      .def("zero_grad", [](PyReducer& r) { r.reducer->ZeroGrad(); })
      .def("step",
           [](PyReducer& r) {
             const Site site = CallSite();
             Raising([&] { r.reducer->Step(r.reducer->state().current(), site); });
           })
      .def("no_sync", [](PyReducer& r) { return NoSync{r.reducer->NoSync()}; })
      .def("owner", [](PyReducer& r, size_t i) { return r.reducer->owner(i); })
      .def("restored", [](PyReducer& r, int64_t updates) { r.reducer->Restored(updates); })
      .def_property_readonly("last_norm", [](PyReducer& r) { return r.reducer->last_norm(); })
      .def_property_readonly("skipped", [](PyReducer& r) { return r.reducer->skipped(); })
      .def_property_readonly("updates", [](PyReducer& r) { return r.reducer->updates(); })
      .def_property_readonly("exposed_seconds",
                             [](PyReducer& r) { return r.reducer->exposed_seconds(); })
      .def_property_readonly("parameter_hash",
                             [](PyReducer& r) { return r.reducer->ParameterHash(); });
}

void BindInput(py::module_& m) {
  py::class_<InputContext>(m, "InputContext")
      .def_readonly("num_replicas", &InputContext::num_replicas)
      .def_readonly("input_pipeline_id", &InputContext::input_pipeline_id)
      .def_readonly("num_input_pipelines", &InputContext::num_input_pipelines)
      .def_readonly("rank", &InputContext::rank)
      .def_readonly("world_size", &InputContext::world_size)
      .def("per_replica_batch", &InputContext::PerReplicaBatch, py::arg("global_batch"));
  py::class_<SampleOrder>(m, "SampleOrder")
      .def(py::init([](int64_t samples, int64_t global_batch, bool shuffle, bool drop_last,
                       uint64_t seed) {
             return SampleOrder{samples, global_batch, shuffle, drop_last, seed};
           }),
           py::arg("samples"), py::arg("global_batch"), py::arg("shuffle") = true,
           py::arg("drop_last") = false, py::arg("seed") = 1)
      .def_property_readonly("steps_per_epoch", &SampleOrder::StepsPerEpoch)
      .def("indices", &SampleOrder::Indices, py::arg("step"), py::arg("replica") = 0,
           py::arg("replicas") = 1);
}

}  // namespace

PYBIND11_MODULE(_replica, m) {
  m.doc() = "Replicated training: see samara.replica.";
  // made in Python, where an exception with a field is three lines
  m.def("set_up", [](const py::object& error_type, std::vector<std::string> folders) {
    replication_error = error_type.inc_ref().ptr();
    skipped_folders = std::move(folders);
    SetAutogradThrow(RaiseInAutograd);
  });
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const ReplicationError& error) {
      Raise(error);
    }
  });
  BindInput(m);
  BindContext(m);
  BindBatchNorm(m);
  BindReplicator(m);
  BindReducer(m);
  m.def("threads", &Threads);
}

}  // namespace samara
