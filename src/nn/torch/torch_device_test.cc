#include "nn/torch/torch_device.h"

#include <gtest/gtest.h>

namespace samara::torch_device_test {
namespace {

using torch::Tensor;

// The CPU, and a GPU where there is one.
std::vector<torch::Device> Devices() {
  std::vector<torch::Device> devices = {torch::kCPU};
  if (torch::cuda::is_available()) devices.emplace_back(torch::kCUDA, 0);
  return devices;
}

TEST(TorchDeviceTest, ArraysArriveAsTheyWereWritten) {
  for (const torch::Device& device : Devices()) {
    Upload upload(device);
    for (const int64_t rows : {3, 0, 70, 1}) {  // memory grows, and is used again
      const auto host = upload.Begin({{{rows, 5}, torch::kUInt8},
                                      {{rows}, torch::kInt64},
                                      {{1, rows}, torch::kBool},
                                      {{rows, 2}, torch::kFloat32}});
      std::vector<Tensor> expected;
      for (size_t i = 0; i < host.size(); ++i) {
        EXPECT_TRUE(host[i].is_cpu());
        expected.push_back(torch::arange(host[i].numel())
                               .remainder(2 + static_cast<int64_t>(i))
                               .to(host[i].dtype())
                               .view(host[i].sizes()));
        Tensor(host[i]).copy_(expected[i]);
      }
      const auto there = upload.Send();
      ASSERT_EQ(there.size(), host.size());
      for (size_t i = 0; i < there.size(); ++i) {
        EXPECT_EQ(there[i].device(), device);
        EXPECT_TRUE(there[i].cpu().equal(expected[i])) << rows << " rows, array " << i;
      }
    }
  }
}

TEST(TorchDeviceTest, TensorsComeBackAsTheyWere) {
  for (const torch::Device& device : Devices()) {
    Download download;
    for (const int64_t rows : {2, 9, 1}) {
      const Tensor index = torch::arange(rows, device), undefined;
      const Tensor floats = torch::randn({rows, 3}, device).t();  // not dense
      const Tensor bytes = torch::arange(rows * 5, device).to(torch::kUInt8).view({rows, 5});
      Tensor a = index, b = floats, c = bytes, d = undefined;
      download.Fetch({&a, &b, &d, &c});
      EXPECT_FALSE(d.defined());
      for (const auto& [got, sent] : {std::pair{a, index}, {b, floats}, {c, bytes}}) {
        EXPECT_TRUE(got.is_cpu() && got.is_contiguous());
        EXPECT_TRUE(got.equal(sent.cpu()));
      }
    }
  }
}

TEST(TorchDeviceTest, TheStreamOfInferenceIsUsedAsLongAsItIsAskedFor) {
  for (const torch::Device& device : Devices()) {
    const PriorityStream stream(device);
    const PriorityStream::Use use(stream);
    const Tensor x = torch::ones({1000}, device);
    EXPECT_EQ((x + x).sum().item<float>(), 2000);
    Synchronize(device);
  }
}

TEST(TorchDeviceTest, DevicesHaveTorchsNames) {
  EXPECT_EQ(ToTorch({}), torch::Device(torch::kCPU));
  EXPECT_EQ(ToTorch({.cuda = true, .ordinal = 3}), torch::Device("cuda:3"));
  if (!torch::cuda::is_available()) {
    EXPECT_EQ(ConfigureGpus(true).code(), Code::kUnavailable);
  }
}

}  // namespace
}  // namespace samara::torch_device_test
