#include "nn/torch/device_graph.h"

#include <gtest/gtest.h>

#include "nn/torch/torch_device.h"

namespace samara::device_graph_test {
namespace {

using torch::Tensor;

TEST(DeviceGraphTest, EveryCallComputesWithTheNewestInput) {
  std::vector<torch::Device> devices = {torch::kCPU};
  if (torch::cuda::is_available()) devices.emplace_back(torch::kCUDA, 0);
  for (const torch::Device& device : devices)
    for (const bool record : {true, false}) {
      const PriorityStream stream(device);
      const PriorityStream::Use use(stream);
      DeviceGraph graph(device, record);
      const Tensor x = torch::zeros({1000}, device), sum = torch::zeros({}, device);
      Tensor result;
      int called = 0;
      for (int call = 1; call <= 5; ++call) {
        x.fill_(call);
        graph.Run([&] {
          ++called;
          result = (x * 2 + 1).sum();
          sum.add_(result);
        });
        EXPECT_EQ(result.item<float>(), 1000 * (2 * call + 1)) << call;
      }
      EXPECT_EQ(sum.item<float>(), 35'000);
      const bool recorded = record && device.is_cuda();
      EXPECT_EQ(graph.recorded(), recorded);
      EXPECT_EQ(called, recorded ? 2 : 5);
    }
}

// Operations that wait for the device cannot be recorded: they are computed all the same.
TEST(DeviceGraphTest, OperationsThatCannotBeRecordedAreComputedAtEveryCall) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "this machine has no GPU";
  const torch::Device device(torch::kCUDA, 0);
  const PriorityStream stream(device);
  const PriorityStream::Use use(stream);
  DeviceGraph graph(device, /*record=*/true);
  const Tensor x = torch::zeros({1000}, device);
  float sum = 0;
  for (int call = 1; call <= 4; ++call) {
    x.fill_(call);
    graph.Run([&] { sum = x.sum().item<float>(); });
    EXPECT_EQ(sum, 1000 * call);
  }
  EXPECT_FALSE(graph.recorded());
  // and others can be recorded after it
  DeviceGraph other(device, /*record=*/true);
  Tensor result;
  for (int call = 1; call <= 3; ++call) other.Run([&] { result = x * 2; });
  EXPECT_TRUE(other.recorded());
  EXPECT_EQ(result.sum().item<float>(), 8000);
}

}  // namespace
}  // namespace samara::device_graph_test
