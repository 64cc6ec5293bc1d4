// Measures a population on a device: evaluations, and parameters from seeds.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "nn/device/accelerator.h"
#include "nn/network.h"

namespace samara::bench {

// The first device that a name, as run.device has it, means here.
Result<std::unique_ptr<Accelerator>> AcceleratorNamed(const std::string& name);

struct DeviceLoad {
  size_t population = 1000;  // networks, each with parameters of its own
  uint32_t many = 1;         // observations of each at a time
  uint32_t lanes = 2;        // batches in flight
  double seconds = 1;        // of each measurement
};

// `frames`: bytes of images of the network's height and width, played one after the other, each
// network beginning at another one. The fields:
//   evaluations_per_second           frames copied to the device, evaluated, outputs copied back
//   evaluations_per_second_resident  the arithmetic alone, on frames that are there
//   batch_microseconds               of the latter
//   layers                           microseconds of each layer of a batch; "stack": the frames'
//   children_per_second              parameters of a child written from its seeds, one at a time
Result<nlohmann::json> MeasureDevicePopulation(Accelerator& accelerator,
                                               const NetworkDescription& network,
                                               const std::vector<std::vector<uint8_t>>& frames,
                                               const DeviceLoad& load);

}  // namespace samara::bench
