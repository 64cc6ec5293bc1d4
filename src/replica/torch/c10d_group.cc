#include "replica/torch/c10d_group.h"

#include <cstdlib>
#include <thread>

#ifdef SAMARA_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif
#ifdef USE_C10D_NCCL  // built for GPUs
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace samara {
namespace {

using namespace std::chrono_literals;

// Gives c10d a store of ours.
class StoreAdapter : public c10d::Store {
 public:
  StoreAdapter(std::shared_ptr<samara::Store> store, std::chrono::milliseconds timeout)
      : c10d::Store(timeout), store_(std::move(store)) {}
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<StoreAdapter>(store_, timeout_);
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    Throw(store_->Set(key, {reinterpret_cast<const char*>(value.data()), value.size()}));
  }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>&,
                                  const std::vector<uint8_t>& desired) override {
    set(key, desired);
    return desired;
  }
  std::vector<uint8_t> get(const std::string& key) override {
    const auto value = store_->Get(key, timeout_);
    Throw(value.status());
    return {value->begin(), value->end()};
  }
  int64_t add(const std::string& key, int64_t value) override {
    const auto sum = store_->Add(key, value);
    Throw(sum.status());
    return *sum;
  }
  bool deleteKey(const std::string& key) override {
    Throw(store_->Delete(key));
    return true;
  }
  bool check(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys)
      if (!store_->Get(key, 1ms).ok()) return false;
    return true;
  }
  int64_t getNumKeys() override { return 0; }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) Throw(store_->Get(key, timeout).status());
  }

 private:
  static void Throw(const Status& status) {
    if (!status.ok()) throw std::runtime_error(status.message());
  }
  const std::shared_ptr<samara::Store> store_;
};

}  // namespace

Result<C10dGroup> MakeGlooGroup(int rank, int size, const std::shared_ptr<Store>& store,
                                const std::string& address, std::chrono::milliseconds deadline) {
#ifdef SAMARA_GLOO
  using Gloo = c10d::ProcessGroupGloo;
  try {
    auto options = Gloo::Options::create();
    // named here: the default resolves the host's name and may choose the wrong network
    options->devices.push_back(address.empty() ? Gloo::createDefaultDevice()
                                               : Gloo::createDeviceForHostname(address));
    options->timeout = deadline;
    return C10dGroup(c10::make_intrusive<Gloo>(c10::make_intrusive<StoreAdapter>(store, deadline),
                                               rank, size, options));
  } catch (const std::exception& e) {
    return Status(Code::kUnavailable, "Gloo between the ranks: " + FirstLine(e.what()));
  }
#else
  (void)rank, (void)size, (void)store, (void)address, (void)deadline;
  return Status(Code::kConfig,
                "this build has no Gloo: install libgloo-dev, or keep all ranks on one host");
#endif
}

std::string GpuId(torch::Device device) {
#ifdef USE_C10D_NCCL
  if (!device.is_cuda()) return "";
  const cudaDeviceProp* const properties = at::cuda::getDeviceProperties(device.index());
  return std::string(properties->uuid.bytes, sizeof properties->uuid.bytes);
#else
  (void)device;
  return "";
#endif
}

Result<C10dGroup> MakeNcclGroup(int rank, int size, const std::shared_ptr<Store>& store,
                                std::chrono::milliseconds deadline) {
#ifdef USE_C10D_NCCL
  // deadlines and failures are looked after here: its own watchdog would end the process
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  setenv("TORCH_NCCL_ENABLE_MONITORING", "0", /*overwrite=*/0);
  try {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = deadline;
    return C10dGroup(c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::make_intrusive<StoreAdapter>(store, deadline), rank, size, options));
  } catch (const std::exception& e) {
    return Status(Code::kUnavailable, "NCCL between the ranks: " + FirstLine(e.what()));
  }
#else
  (void)rank, (void)size, (void)store, (void)deadline;
  return Status(Code::kConfig,
                "this build is for CPUs and has no NCCL: set up and build with SAMARA_CUDA=1");
#endif
}

Status WaitFor(const std::function<c10::intrusive_ptr<c10d::Work>()>& start, SteadyTime deadline,
               const std::function<Status()>& stopped) {
  RETURN_IF_ERROR(stopped());
  try {
    const auto work = start();
    auto pause = 5us;
    for (int i = 0; !work->isCompleted(); ++i) {
      RETURN_IF_ERROR(stopped());
      if (Now() > deadline) return Status(kDeadlinePassed, "not all ranks came in time");
      if (i > 20)
        std::this_thread::sleep_for(pause);
      else
        std::this_thread::yield();
      pause = std::min(pause * 2, 200us);
    }
    work->wait();
    return {};
  } catch (const std::exception& e) {
    // the monitor knows more, a moment later
    for (int i = 0; i < 200; ++i) {
      RETURN_IF_ERROR(stopped());
      std::this_thread::sleep_for(10ms);
    }
    return Status(Code::kUnavailable, "a connection between ranks broke: " + FirstLine(e.what()));
  }
}

}  // namespace samara
