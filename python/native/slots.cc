// SPDX-License-Identifier: Apache-2.0 OR MIT
// The actor's hot loop: wait for commands without the GIL, let Python step the simulator into
// shared memory, check what it gave, publish. The other side of fleet/slot_table.cc.
#include <fcntl.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "evo/evaluate/policy.h"
#include "fleet/policy_segment.h"
#include "fleet/slot_server.h"

namespace nb = nanobind;
namespace samara {
namespace {

std::byte* Map(int fd, size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED)
    throw std::runtime_error("cannot map shared memory of the learner process");
  return static_cast<std::byte*>(address);
}

size_t SizeOf(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
}

std::byte* MapWhole(int fd, size_t bytes_min) {
  const size_t bytes = SizeOf(fd);
  if (bytes < bytes_min)
    throw std::runtime_error("shared memory is smaller than the protocol says");
  return Map(fd, bytes);
}

template <typename T>
nb::object View(std::byte* data, const std::vector<size_t>& shape) {
  // the mapping lives as long as the process: nothing to free
  nb::capsule keeper(data, [](void*) noexcept {});
  return nb::cast(nb::ndarray<nb::numpy, T>(data, shape.size(), shape.data(), keeper));
}

using Clock = std::chrono::steady_clock;

uint64_t NanosecondsSince(Clock::time_point start) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
}

// The policies that this actor plays by itself: a state per slot, parameters copied from shared
// memory when an episode begins (private memory has huge pages, and the learner process may prepare
// the next episode).
class Policies {
 public:
  Policies(int fd, uint32_t slots) : segment_(MapWhole(fd, sizeof(PolicySegmentHeader))) {
    PolicySegmentHeader header;
    CopyOnce(segment_.header(), header);
    if (header.magic != kPolicyMagic || header.slots != slots ||
        header.description_bytes > kPolicyDescriptionBytesMax ||
        header.parameter_bytes > kPolicyParameterBytesMax ||
        header.recording_bytes > kPolicyRecordingBytesMax ||
        SizeOf(fd) < PolicySegment::Bytes(header))
      throw std::runtime_error("shared memory does not hold the policies of these slots");
    auto model = PolicyModel::FromDescription(segment_.description());
    if (!model.ok()) throw std::runtime_error(model.status().message());
    model_ = std::move(*model);
    if (header.parameter_bytes != model_->kernel().packed_size() * sizeof(float))
      throw std::runtime_error(
          "shared memory does not hold the policies that the learner process describes");
    workspace_ = std::make_unique<PolicyWorkspace>(*model_);
    for (uint32_t s = 0; s < slots; ++s) states_.push_back(std::make_unique<PolicyState>(*model_));
  }

  void Begin(uint32_t slot, bool random, uint64_t seed, float action_noise) {
    const auto bytes = segment_.parameters(slot);
    if (random)
      states_[slot]->LoadRandom();
    else
      states_[slot]->LoadPacked({reinterpret_cast<const float*>(bytes.data()), bytes.size() / 4});
    states_[slot]->StartEpisode({.seed = seed, .action_noise = action_noise});
  }
  std::span<std::byte> recording(uint32_t slot) const { return segment_.recording(slot); }
  Action Decide(uint32_t slot, std::span<const std::byte> observation) {
    return states_[slot]->Decide(*workspace_, observation);
  }

 private:
  PolicySegment segment_;
  std::unique_ptr<PolicyModel> model_;
  std::unique_ptr<PolicyWorkspace> workspace_;
  std::vector<std::unique_ptr<PolicyState>> states_;
};

class Slots {
 public:
  // Maps the segment and checks that its header says what was agreed at Hello. `policies` is mapped
  // when the first whole episode is asked for.
  Slots(int segment, int bell, int control, int policies, uint32_t slots, bool float32,
        const std::vector<size_t>& observation_shape, int64_t action_n, bool discrete,
        const std::array<size_t, 3>& picture_shape, size_t memory_bytes, size_t position)
      : control_(control),
        policies_fd_(policies),
        float32_(float32),
        discrete_(discrete),
        action_n_(action_n) {
    size_t observation = float32 ? 4 : 1;
    for (size_t d : observation_shape) observation *= d;
    picture_bytes_ = picture_shape[1] * picture_shape[2] * 3;
    const SegmentLayout layout(slots, observation, picture_shape[0] * picture_bytes_, memory_bytes,
                               position * sizeof(float));
    std::byte* memory = MapWhole(segment, layout.segment_bytes());
    if (const auto why = SlotServer::Mismatch(memory, SizeOf(segment), layout); !why.empty())
      throw std::runtime_error(why);
    server_.emplace(memory, layout, reinterpret_cast<Doorbell*>(MapWhole(bell, sizeof(Doorbell))),
                    discrete ? 0 : static_cast<size_t>(action_n));
    for (uint32_t s = 0; s < slots; ++s) {
      const SlotView view = server_->view(s);
      for (uint32_t area : {0, 1}) {
        std::byte* data = view.observation(area).data();
        observations_.push_back(float32 ? View<float>(data, observation_shape)
                                        : View<uint8_t>(data, observation_shape));
      }
      if (layout.memory_bytes != 0)
        memories_.push_back(View<uint8_t>(view.memory().data(), {layout.memory_bytes}));
      if (position != 0) positions_.push_back(View<float>(view.position().data(), {position}));
      if (layout.pictures_bytes != 0)
        pictures_.push_back(View<uint8_t>(
            view.pictures().data(), {picture_shape[0], picture_shape[1], picture_shape[2], 3}));
    }
    values_ = View<float>(reinterpret_cast<std::byte*>(command().values),
                          {static_cast<size_t>(discrete ? 0 : action_n)});
  }

  // Serves commands until the learner process asks it to leave or has ended. An exception of an
  // environment passes through; current() then tells which slot was being served.
  void Serve(const nb::list& environments) {
    for (const nb::handle environment : environments) {
      resets_.push_back(environment.attr("reset"));
      steps_.push_back(environment.attr("step"));
      if (!pictures_.empty()) draws_.push_back(environment.attr("pictures"));
      if (!memories_.empty()) reads_.push_back(environment.attr("memory"));
      if (!positions_.empty()) locates_.push_back(environment.attr("position"));
    }
    if (resets_.size() != server_->layout().slots)
      throw std::runtime_error("one environment per slot");
    for (;;) {
      while (server_->Next()) ServeCommand();
      if (server_->leave()) return;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      nb::gil_scoped_release release;
      // the learner process's death is noticed by PR_SET_PDEATHSIG before
      if (!server_->Wait() && EngineGone()) return;
    }
  }

  // (slot, episode, step) that was served last.
  nb::tuple current() const {
    return nb::make_tuple(server_->slot(), command().episode, command().step);
  }

 private:
  bool EngineGone() const {
    pollfd p{control_, POLLIN, 0};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)) != 0;
  }

  SlotCommand& command() { return server_->command(); }
  const SlotCommand& command() const { return server_->command(); }

  void ServeCommand() {
    if (const std::string why = server_->Refusal(); !why.empty()) throw std::runtime_error(why);
    const uint32_t slot = server_->slot();
    const SlotView view = server_->view();
    SlotReply reply{};
    reply.step = command().step;
    switch (command().kind) {
      case SlotCommandKind::kReset:
        Reset(slot, view, reply);
        break;
      case SlotCommandKind::kAct:
        Step(slot, view, reply);
        break;
      case SlotCommandKind::kPlay:
        Play(slot, view, reply);
        break;
    }
    server_->Publish(reply);
  }

  const nb::object& Observation(uint32_t slot) const {
    return observations_[2 * slot + command().observation];
  }

  void Reset(uint32_t slot, const SlotView& view, SlotReply& reply) {
    const auto start = Clock::now();
    resets_[slot](command().seed, command().noops, command().frames_max, Observation(slot));
    Draw(slot, reply);
    reply.nanoseconds += NanosecondsSince(start);
    Check(view, reply);
  }

  // One step with the action of command().
  void Step(uint32_t slot, const SlotView& view, SlotReply& reply) {
    if (discrete_ && (command().index < 0 || command().index >= action_n_))
      throw std::runtime_error("a command of the learner process breaks the slot protocol");
    const auto start = Clock::now();
    ReadStep(discrete_ ? steps_[slot](command().index, Observation(slot))
                       : steps_[slot](values_, Observation(slot)),
             reply);
    if (Has(kSlotRecordMemory) && !reads_.empty()) reads_[slot](memories_[slot]);
    if (!locates_.empty()) locates_[slot](positions_[slot]);
    Draw(slot, reply);
    reply.nanoseconds += NanosecondsSince(start);
    Check(view, reply);
  }

  bool Has(SlotOptions option) const { return (command().options & option) != 0; }

  void Draw(uint32_t slot, SlotReply& reply) {
    if (!draws_.empty()) reply.pictures = nb::cast<uint32_t>(draws_[slot](pictures_[slot]));
  }

  // A whole episode with the slot's policy; `total` sums its steps in their order.
  void Play(uint32_t slot, const SlotView& view, SlotReply& total) {
    if (!policies_) policies_.emplace(policies_fd_, server_->layout().slots);
    policies_->Begin(slot, Has(kSlotRandom), command().seed, command().values[0]);
    const std::span<std::byte> recording = policies_->recording(slot);
    Reset(slot, view, total);
    while ((total.flags & (kSlotTerminated | kSlotTruncated)) == 0) {
      if (view.command().abandoned.load(std::memory_order_relaxed) != 0 || server_->leave()) {
        total.flags = kSlotAbandoned;
        return;
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      const auto start = Clock::now();
      TakeAction(policies_->Decide(slot, view.observation(command().observation)));
      total.inference_nanoseconds += NanosecondsSince(start);
      command().step = ++total.step;
      if (Has(kSlotKeepObservations))
        Keep(view.observation(command().observation), total.step, recording);
      SlotReply step{};
      Step(slot, view, step);
      if (Has(kSlotKeepMemory)) Keep(view.memory(), total.step, recording);
      if (Has(kSlotKeepPositions)) Keep(view.position(), total.step, recording);
      total.reward += FitnessOf(step.reward, {.signs = Has(kSlotSigns)});
      total.frames += step.frames;
      total.nanoseconds += step.nanoseconds;
      total.flags = step.flags;
      total.pictures = step.pictures;
      view.reply().played.fetch_add(1, std::memory_order_relaxed);
    }
  }

  // The row of step number `step`, to its place in the recording of a whole episode.
  static void Keep(std::span<const std::byte> row, uint32_t step, std::span<std::byte> recording) {
    const size_t begin = (step - 1) * row.size();
    if (begin + row.size() > recording.size())
      throw std::runtime_error("the episode is longer than the learner process lets it record");
    std::copy(row.begin(), row.end(), recording.begin() + static_cast<ptrdiff_t>(begin));
  }

  void TakeAction(const Action& action) {
    command().index = action.index;
    std::copy(action.values.begin(), action.values.end(), command().values);
  }

  // (reward, terminated, truncated, life_lost, frames)
  static void ReadStep(const nb::object& result, SlotReply& reply) {
    const auto truth = [&](size_t i) {
      const int value = PyObject_IsTrue(nb::object(result[i]).ptr());
      if (value < 0) throw nb::python_error();
      return value != 0;
    };
    if (nb::len(result) != 5)
      throw nb::value_error(
          "step returned something else than (reward, terminated, truncated, "
          "life_lost, frames)");
    reply.reward = nb::cast<double>(nb::float_(nb::object(result[0])));
    if (truth(1))
      reply.flags = kSlotTerminated;
    else if (truth(2))
      reply.flags = kSlotTruncated;
    if (truth(3)) reply.flags |= kSlotLifeLost;
    reply.frames = nb::cast<uint32_t>(nb::int_(nb::object(result[4])));
  }

  void Check(const SlotView& view, const SlotReply& reply) const {
    if (!std::isfinite(reply.reward)) throw nb::value_error("the reward is not a finite number");
    if (reply.pictures * picture_bytes_ > server_->layout().pictures_bytes)
      throw nb::value_error("more pictures than render_frames");
    const auto position = view.position();
    if (const std::span values{reinterpret_cast<const float*>(position.data()),
                               position.size() / sizeof(float)};
        FirstNonFinite(values) < values.size())
      throw nb::value_error("the position is not finite");
    if (!float32_) return;
    const auto bytes = view.observation(command().observation);
    const std::span values{reinterpret_cast<const float*>(bytes.data()), bytes.size() / 4};
    if (const size_t i = FirstNonFinite(values); i < values.size())
      throw nb::value_error(
          ("observation[" + std::to_string(i) + "] is not a finite number").c_str());
  }

  // constant after construction
  int control_, policies_fd_;
  bool float32_, discrete_;
  int64_t action_n_;
  size_t picture_bytes_ = 0;
  // views: two per slot, then one per slot
  std::vector<nb::object> observations_, pictures_, memories_, positions_;
  // bound methods, one per slot
  std::vector<nb::object> resets_, steps_, draws_, reads_, locates_;
  nb::object values_;                 // view of the command's values
  std::optional<Policies> policies_;  // from the first whole episode on
  std::optional<SlotServer> server_;  // there after construction
};

// The kernel kills this process when the thread that spawned it ends: no orphan burns a core.
void DieWithParent() {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) throw std::runtime_error("prctl failed");
}

}  // namespace
}  // namespace samara

void BindSlots(nb::module_& m) {
  using samara::Slots;
  m.attr("SLOT_PROTOCOL") = samara::kSlotProtocol;
  m.attr("ACTION_VALUES_MAX") = samara::kActionValuesMax;
  m.def("die_with_parent", &samara::DieWithParent,
        "Asks the kernel to kill this process when the learner process dies.");
  nb::class_<Slots>(m, "Slots", "The actor's side of its slots in shared memory.")
      .def(nb::init<int, int, int, int, uint32_t, bool, const std::vector<size_t>&, int64_t, bool,
                    const std::array<size_t, 3>&, size_t, size_t>(),
           nb::arg("segment"), nb::arg("bell"), nb::arg("control"), nb::arg("policies"),
           nb::arg("slots"), nb::arg("float32"), nb::arg("observation_shape"), nb::arg("action_n"),
           nb::arg("discrete"), nb::arg("picture_shape"), nb::arg("memory") = 0,
           nb::arg("position") = 0)
      .def("serve", &Slots::Serve, nb::arg("environments"),
           "Serves commands with one environment per slot until the learner process asks it to "
           "leave or has ended.")
      .def_prop_ro("current", &Slots::current, "(slot, episode, step) served last.");
}
