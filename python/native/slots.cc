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

#include "evo/policy.h"
#include "fleet/policy_segment.h"
#include "fleet/slot.h"

namespace nb = nanobind;
namespace samara {
namespace {

// Catches an engine that answers at once; longer only takes the core from the other processes.
constexpr std::chrono::microseconds kSpin{5};
// How often a silent engine's life is checked; its death is noticed by PR_SET_PDEATHSIG before.
constexpr std::chrono::milliseconds kPatience{500};

std::byte* Map(int fd, size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) throw std::runtime_error("cannot map shared memory of the engine");
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
// memory when an episode begins (private memory has huge pages, and the engine may prepare the next
// episode).
class Policies {
 public:
  Policies(int fd, uint32_t slots) : segment_(MapWhole(fd, sizeof(PolicySegmentHeader))) {
    PolicySegmentHeader header;
    CopyOnce(segment_.header(), header);
    if (header.magic != kPolicyMagic || header.slots != slots ||
        header.description_bytes > kPolicyDescriptionBytesMax ||
        header.parameter_bytes > kPolicyParameterBytesMax ||
        SizeOf(fd) < PolicySegment::Bytes(header))
      throw std::runtime_error("shared memory does not hold the policies of these slots");
    auto model = PolicyModel::FromDescription(segment_.description());
    if (!model.ok()) throw std::runtime_error(model.status().message());
    model_ = std::move(*model);
    if (header.parameter_bytes != model_->kernel().packed_size() * sizeof(float))
      throw std::runtime_error(
          "shared memory does not hold the policies that the engine describes");
    workspace_ = std::make_unique<PolicyWorkspace>(*model_);
    for (uint32_t s = 0; s < slots; ++s) states_.push_back(std::make_unique<PolicyState>(*model_));
  }

  void Begin(uint32_t slot, bool random, uint64_t seed) {
    const auto bytes = segment_.parameters(slot);
    if (random)
      states_[slot]->LoadRandom();
    else
      states_[slot]->LoadPacked({reinterpret_cast<const float*>(bytes.data()), bytes.size() / 4});
    states_[slot]->StartEpisode(seed);
  }
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
        const std::array<size_t, 3>& picture_shape)
      : control_(control),
        policies_fd_(policies),
        float32_(float32),
        discrete_(discrete),
        action_n_(action_n) {
    size_t observation = float32 ? 4 : 1;
    for (size_t d : observation_shape) observation *= d;
    picture_bytes_ = picture_shape[1] * picture_shape[2] * 3;
    layout_ = SegmentLayout(slots, observation, picture_shape[0] * picture_bytes_);
    segment_ = MapWhole(segment, layout_.segment_bytes());
    bell_ = reinterpret_cast<Doorbell*>(MapWhole(bell, sizeof(Doorbell)));
    header_ = reinterpret_cast<SegmentHeader*>(segment_);
    if (header_->magic != kSegmentMagic || header_->protocol != kSlotProtocol ||
        header_->slots != slots || header_->observation_bytes != layout_.observation_bytes ||
        header_->pictures_bytes != layout_.pictures_bytes)
      throw std::runtime_error("shared memory does not hold what was agreed with the engine");
    incarnation_ = header_->incarnation;
    done_.resize(slots, 0);
    for (uint32_t s = 0; s < slots; ++s) {
      const SlotView view(segment_, layout_, s);
      for (uint32_t area : {0, 1}) {
        std::byte* data = view.observation(area).data();
        observations_.push_back(float32 ? View<float>(data, observation_shape)
                                        : View<uint8_t>(data, observation_shape));
      }
      if (layout_.pictures_bytes != 0)
        pictures_.push_back(View<uint8_t>(
            view.pictures().data(), {picture_shape[0], picture_shape[1], picture_shape[2], 3}));
    }
    values_ = View<float>(reinterpret_cast<std::byte*>(command_.values),
                          {static_cast<size_t>(discrete ? 0 : action_n)});
  }

  // Serves commands until the engine says leave or is gone. An exception of an environment passes
  // through; current() then tells which slot was being served.
  void Serve(const nb::list& environments) {
    for (const nb::handle environment : environments) {
      resets_.push_back(environment.attr("reset"));
      steps_.push_back(environment.attr("step"));
      if (!pictures_.empty()) draws_.push_back(environment.attr("pictures"));
    }
    if (resets_.size() != layout_.slots) throw std::runtime_error("one environment per slot");
    for (;;) {
      // read before looking, so that a command posted meanwhile is not slept over
      const uint32_t seen = header_->commands.count.load(std::memory_order_acquire);
      bool any = false;
      for (uint32_t s = 0; s < layout_.slots; ++s) any |= ServeSlot(s);
      if (header_->leave.load(std::memory_order_relaxed) != 0) return;
      if (any) continue;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      nb::gil_scoped_release release;
      if (!WaitForRing(header_->commands, seen, kSpin, kPatience) && EngineGone()) return;
    }
  }

  // (slot, episode, step) that was served last.
  nb::tuple current() const { return nb::make_tuple(current_, command_.episode, command_.step); }

 private:
  bool EngineGone() const {
    pollfd p{control_, POLLIN, 0};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)) != 0;
  }

  // Executes the slot's command if there is a new one.
  bool ServeSlot(uint32_t slot) {
    const SlotView view(segment_, layout_, slot);
    // acquire: pairs with the release in SlotTable::Post
    const uint64_t sequence = view.command().sequence.load(std::memory_order_acquire);
    if (sequence == done_[slot]) return false;
    CopyOnce(view.command(), command_);
    current_ = slot;
    if (command_.incarnation != incarnation_ || command_.observation > 1)
      throw std::runtime_error("command of the engine breaks the slot protocol");
    SlotReply reply{};
    reply.step = command_.step;
    switch (command_.kind) {
      case SlotCommandKind::kReset:
        Reset(slot, view, reply);
        break;
      case SlotCommandKind::kAct:
        Step(slot, view, reply);
        break;
      case SlotCommandKind::kPlay:
        Play(slot, view, reply);
        break;
      default:
        throw std::runtime_error("command of the engine breaks the slot protocol");
    }
    done_[slot] = sequence;
    Publish(view, sequence, reply);
    return true;
  }

  const nb::object& Observation(uint32_t slot) const {
    return observations_[2 * slot + command_.observation];
  }

  void Reset(uint32_t slot, const SlotView& view, SlotReply& reply) {
    const auto start = Clock::now();
    resets_[slot](command_.seed, command_.noops, command_.frames_max, Observation(slot));
    Draw(slot, reply);
    reply.nanoseconds += NanosecondsSince(start);
    Check(view, reply);
  }

  // One step with the action of command_.
  void Step(uint32_t slot, const SlotView& view, SlotReply& reply) {
    if (discrete_ && (command_.index < 0 || command_.index >= action_n_))
      throw std::runtime_error("command of the engine breaks the slot protocol");
    const auto start = Clock::now();
    ReadStep(discrete_ ? steps_[slot](command_.index, Observation(slot))
                       : steps_[slot](values_, Observation(slot)),
             reply);
    Draw(slot, reply);
    reply.nanoseconds += NanosecondsSince(start);
    Check(view, reply);
  }

  void Draw(uint32_t slot, SlotReply& reply) {
    if (!draws_.empty()) reply.pictures = nb::cast<uint32_t>(draws_[slot](pictures_[slot]));
  }

  // A whole episode with the slot's policy; `total` sums its steps in their order.
  void Play(uint32_t slot, const SlotView& view, SlotReply& total) {
    if (!policies_) policies_.emplace(policies_fd_, layout_.slots);
    policies_->Begin(slot, command_.random != 0, command_.seed);
    Reset(slot, view, total);
    while ((total.flags & (kSlotTerminated | kSlotTruncated)) == 0) {
      if (view.command().abandoned.load(std::memory_order_relaxed) != 0 ||
          header_->leave.load(std::memory_order_relaxed) != 0) {
        total.flags = kSlotAbandoned;
        return;
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      const auto start = Clock::now();
      TakeAction(policies_->Decide(slot, view.observation(command_.observation)));
      total.inference_nanoseconds += NanosecondsSince(start);
      command_.step = ++total.step;
      SlotReply step{};
      Step(slot, view, step);
      total.reward += step.reward;
      total.frames += step.frames;
      total.nanoseconds += step.nanoseconds;
      total.flags = step.flags;
      total.pictures = step.pictures;
      view.reply().played.fetch_add(1, std::memory_order_relaxed);
    }
  }

  void TakeAction(const Action& action) {
    command_.index = action.index;
    std::copy(action.values.begin(), action.values.end(), command_.values);
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
    if (reply.pictures * picture_bytes_ > layout_.pictures_bytes)
      throw nb::value_error("more pictures than render_frames");
    if (!float32_) return;
    const auto bytes = view.observation(command_.observation);
    const std::span values{reinterpret_cast<const float*>(bytes.data()), bytes.size() / 4};
    if (const size_t i = FirstNonFinite(values); i < values.size())
      throw nb::value_error(
          ("observation[" + std::to_string(i) + "] is not a finite number").c_str());
  }

  void Publish(const SlotView& view, uint64_t sequence, SlotReply& reply) {
    reply.episode = command_.episode;
    reply.incarnation = command_.incarnation;
    reply.checksum = ReplyChecksum(reply, view.observation(command_.observation));
    constexpr size_t kFirst = offsetof(SlotReply, episode), kEnd = offsetof(SlotReply, played);
    std::memcpy(reinterpret_cast<std::byte*>(&view.reply()) + kFirst,
                reinterpret_cast<const std::byte*>(&reply) + kFirst, kEnd - kFirst);
    // release: pairs with the acquire in SlotTable::TakeReply
    view.reply().sequence.store(sequence, std::memory_order_release);
    Ring(*bell_);
  }

  // constant after construction
  int control_, policies_fd_;
  bool float32_, discrete_;
  int64_t action_n_;
  size_t picture_bytes_ = 0;
  SegmentLayout layout_;
  std::byte* segment_ = nullptr;
  SegmentHeader* header_ = nullptr;
  Doorbell* bell_ = nullptr;  // shared by all actors
  uint32_t incarnation_ = 0;
  std::vector<nb::object> observations_, pictures_;  // views: two per slot, one per slot
  std::vector<nb::object> resets_, steps_, draws_;   // bound methods, one per slot
  nb::object values_;                                // view of command_.values
  std::optional<Policies> policies_;                 // from the first whole episode on
  // of the command being served
  SlotCommand command_{};
  uint32_t current_ = 0;
  std::vector<uint64_t> done_;  // per slot: sequence of the last command served
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
        "Asks the kernel to kill this process when the engine dies.");
  nb::class_<Slots>(m, "Slots", "The actor's side of its slots in shared memory.")
      .def(nb::init<int, int, int, int, uint32_t, bool, const std::vector<size_t>&, int64_t, bool,
                    const std::array<size_t, 3>&>(),
           nb::arg("segment"), nb::arg("bell"), nb::arg("control"), nb::arg("policies"),
           nb::arg("slots"), nb::arg("float32"), nb::arg("observation_shape"), nb::arg("action_n"),
           nb::arg("discrete"), nb::arg("picture_shape"))
      .def("serve", &Slots::Serve, nb::arg("environments"),
           "Serves commands with one environment per slot until the engine says leave or is gone.")
      .def_prop_ro("current", &Slots::current, "(slot, episode, step) served last.");
}
