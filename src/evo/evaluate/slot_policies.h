// The policies of a fleet's slots, wherever their networks are computed: on this CPU, a slot after
// the other, or on a device, many slots at a time (evo/device/device_policies.h). The actions are
// the same, bit for bit.
//
// Thread safety: a slot and a worker belong to one thread at a time.
#pragma once

#include <memory>
#include <span>

#include "evo/evaluate/policy.h"

namespace samara {

class SlotPolicies {
 public:
  // Scratch of one inference thread.
  class Worker {
   public:
    virtual ~Worker() = default;
  };
  virtual ~SlotPolicies() = default;
  virtual Result<std::unique_ptr<Worker>> MakeWorker() = 0;
  // Slots that a thread decides for at a time, at most.
  virtual size_t batch() const = 0;
  // Whether states of episodes can be recorded.
  virtual bool records() const = 0;

  // Forgets what slots hold: the handles of the next source mean other policies. No worker is at
  // work meanwhile.
  virtual void Reset() = 0;
  // Gives the slot the parameters of `policy`, unless it has them.
  virtual Status Load(Worker& worker, uint32_t slot, PolicyHandle policy,
                      const ParameterSource& source) = 0;
  // An episode begins, or a sequence of its own within one (PolicyState).
  virtual void StartEpisode(uint32_t slot, const EpisodeSpec& episode, bool record) = 0;
  virtual void StartSequence(uint32_t slot) = 0;
  // The action of each slot for its newest observation; its values are valid until the slot's next
  // call. REQUIRES: at most batch() slots, all different.
  virtual Status Decide(Worker& worker, std::span<const uint32_t> slots,
                        std::span<const std::span<const std::byte>> observations,
                        std::span<Action> actions) = 0;
  // Time that a device took for batches, summed over workers; 0 without a device. Any thread may
  // ask.
  virtual double device_seconds() const { return 0; }
  // Recording of the slot's episode.
  virtual Experience experience(uint32_t slot) const = 0;
};

// On this CPU.
std::unique_ptr<SlotPolicies> MakeCpuPolicies(std::unique_ptr<PolicyModel> model, uint32_t slots);

}  // namespace samara
