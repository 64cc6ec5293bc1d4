#include "replica/collectives/alone.h"

namespace samara {
namespace {

class AloneTransport : public Transport {
 public:
  const char* name() const override { return "alone"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  size_t bytes_max() const override { return size_t{1} << 30; }
  Status Gather(const Round& round, const Write& write, const Read& read) override {
    mine_.resize(round.bytes);
    if (round.bytes > 0) write(mine_);
    const std::span<const std::byte> shown = mine_;
    read({&shown, 1});
    return {};
  }
  Status Scatter(const Round& round, const Write& write, const Read& read) override {
    return Gather(round, write, read);
  }
  std::vector<int> missing() const override { return {}; }
  void Abort(const Status&) override {}

 private:
  std::vector<std::byte> mine_;
};

}  // namespace

std::unique_ptr<Transport> MakeAloneTransport() { return std::make_unique<AloneTransport>(); }

}  // namespace samara
