// Policies of slots whose networks are computed on a device (nn/device/population.h): a batch of
// slots at a time, each with the parameters of its own policy, which are decoded from seeds there.
// Slots that play the same policy share its parameters.
#pragma once

#include <memory>

#include "evo/evaluate/slot_policies.h"
#include "nn/device/accelerator.h"

namespace samara {

// Whether a model can be computed on a device. kConfig says what cannot.
Status SupportsDevice(const PolicyModel& model);

// `batch`: slots that a thread decides for at a time. kConfig as above; kNoResources: the device's
// memory does not hold a network for each slot.
Result<std::unique_ptr<SlotPolicies>> MakeDevicePolicies(std::unique_ptr<Accelerator> accelerator,
                                                         std::unique_ptr<PolicyModel> model,
                                                         uint32_t slots, uint32_t batch);

}  // namespace samara
