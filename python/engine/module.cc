// SPDX-License-Identifier: Apache-2.0 OR MIT
// samara._engine: the environment fleet for samara.make_vec, the population kernel. Unlike
// samara._native it links the native environments and the fleet, which are under Apache-2.0 alone.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <nlohmann/json.hpp>

#include "engine/vector.h"
#include "env/registry.h"
#include "fleet/actor_messages.h"

namespace nb = nanobind;

void BindPopulation(nb::module_& m);  // population.cc: many networks at a time

namespace samara {
namespace {

template <typename T>
using Row = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<nb::c_contig, nb::device::cpu>;

template <typename T>
std::span<T> SpanOf(const Row<T>& row) {
  return {row.data(), row.shape(0)};
}

// Rows that Receive fills, and how many are filled.
struct Rows {
  Row<int32_t> environment;
  Bytes observation;
  Row<double> reward;
  Row<bool> terminated, truncated, life_lost;
  Row<int32_t> frames;

  VectorRows view() const {
    return {
        SpanOf(environment), {static_cast<std::byte*>(observation.data()), observation.nbytes()},
        SpanOf(reward),      SpanOf(terminated),
        SpanOf(truncated),   SpanOf(life_lost),
        SpanOf(frames)};
  }
};

// Fills all rows; Ctrl-C is noticed meanwhile.
void Receive(EnvironmentVector& vector, const Rows& rows, bool by_environment) {
  const VectorRows view = rows.view();
  const size_t n = view.reward.size();
  if (view.observation.size() != n * vector.observation_bytes() || view.environment.size() != n ||
      view.terminated.size() != n || view.truncated.size() != n || view.life_lost.size() != n ||
      view.frames.size() != n)
    throw nb::value_error("rows of different sizes");
  for (size_t filled = 0; filled < n;) {
    {
      nb::gil_scoped_release release;
      filled = vector.Receive(view, filled, by_environment, std::chrono::milliseconds(100));
    }
    if (filled < n && PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

Autoreset AutoresetNamed(const std::string& name) {
  if (name == "next-step") return Autoreset::kNextStep;
  if (name == "same-step") return Autoreset::kSameStep;
  if (name == "disabled") return Autoreset::kDisabled;
  throw Error(Code::kConfig, "autoreset=" + name + ": expected next-step, same-step or disabled");
}

std::unique_ptr<EnvironmentVector> Make(const std::string& environment, uint32_t environments,
                                        const std::string& preset, const std::string& kwargs,
                                        const std::string& wrappers,
                                        std::optional<uint32_t> workers, int64_t stack,
                                        int64_t frames_max, const std::string& autoreset,
                                        double step_timeout, const std::string& python,
                                        const std::string& python_path) {
  VectorOptions options;
  options.environment = environment;
  options.environments = environments;
  options.preset = preset;
  options.gym = {.kwargs = kwargs, .wrappers = wrappers};
  options.workers = workers;
  options.stack = stack;
  options.frames_max = frames_max;
  options.autoreset = AutoresetNamed(autoreset);
  options.actors.step_timeout = step_timeout;
  options.actors.retry_exceptions = false;  // no episode is asked for again
  options.actors.python = python;
  options.actors.python_path = python_path;
  nb::gil_scoped_release release;
  return std::make_unique<EnvironmentVector>(options);
}

// As JSON: DescribeSpaces, and what else of the environment a program may want to know.
std::string Spec(const EnvironmentVector& vector) {
  const EnvironmentSpec& spec = vector.spec();
  nlohmann::json described = DescribeSpaces(spec);
  described.update({{"id", spec.id},
                    {"version", spec.version},
                    {"action_names", spec.action_names},
                    {"steps_max", spec.steps_max}});
  return described.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// samara::Error as samara.Error.
void RegisterError() {
  static PyObject* const type =
      nb::module_::import_("samara.program").attr("Error").inc_ref().ptr();
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      const nb::object made =
          nb::handle(type)(static_cast<int>(error.status().code()), error.what());
      PyErr_SetObject(type, made.ptr());
    }
  });
}

void BindVector(nb::module_& m) {
  nb::class_<EnvironmentVector>(m, "EnvironmentVector", "Environments that are stepped together.")
      .def_prop_ro("spec", &Spec)
      .def_prop_ro("stack", &EnvironmentVector::stack)
      .def_prop_ro("workers", &EnvironmentVector::workers)
      .def_prop_ro("outstanding", &EnvironmentVector::outstanding)
      .def("reset",
           [](EnvironmentVector& vector, const Row<const int32_t>& environments,
              const std::vector<std::optional<uint64_t>>& seeds) {
             nb::gil_scoped_release release;
             vector.Reset(SpanOf(environments), seeds);
           })
      .def("send_index",
           [](EnvironmentVector& vector, const Row<const int32_t>& environments,
              const Row<const int32_t>& index) {
             nb::gil_scoped_release release;
             vector.Send(SpanOf(environments), SpanOf(index), {});
           })
      .def("send_values",
           [](EnvironmentVector& vector, const Row<const int32_t>& environments,
              const Row<const float>& values) {
             nb::gil_scoped_release release;
             vector.Send(SpanOf(environments), {}, SpanOf(values));
           })
      .def("receive",
           [](EnvironmentVector& vector, Row<int32_t> environment, Bytes observation,
              Row<double> reward, Row<bool> terminated, Row<bool> truncated, Row<bool> life_lost,
              Row<int32_t> frames, bool by_environment) {
             Receive(vector,
                     {std::move(environment), std::move(observation), std::move(reward),
                      std::move(terminated), std::move(truncated), std::move(life_lost),
                      std::move(frames)},
                     by_environment);
           })
      .def("observe",
           [](const EnvironmentVector& vector, uint32_t environment, const Bytes& out) {
             vector.Observe(environment, {static_cast<std::byte*>(out.data()), out.nbytes()});
           })
      .def("final_observation",
           [](const EnvironmentVector& vector, uint32_t environment, const Bytes& out) {
             const auto bytes = vector.final_observation(environment);
             if (out.nbytes() != bytes.size()) throw nb::value_error("another size");
             std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(out.data()));
           });
}

}  // namespace
}  // namespace samara

NB_MODULE(_engine, m) {
  m.doc() = "The environment fleet and the population kernel.";
  nb::set_leak_warnings(false);  // of objects that live until the interpreter ends
  samara::RegisterError();
  m.def("native_environments", &samara::NativeEnvironmentIds,
        "Ids of the environments in C++, in the order of the documentation.");
  m.def("make", &samara::Make, nb::arg("environment"), nb::arg("environments"), nb::arg("preset"),
        nb::arg("kwargs"), nb::arg("wrappers"), nb::arg("workers").none(), nb::arg("stack"),
        nb::arg("frames_max"), nb::arg("autoreset"), nb::arg("step_timeout"), nb::arg("python"),
        nb::arg("python_path"));
  samara::BindVector(m);
  BindPopulation(m);
}
