#include <algorithm>
#include <charconv>
#include <sstream>

#include "replica/liveness/polled_monitor.h"
#include "replica/rendezvous/secret.h"

namespace samara {

std::string WriteMonitorAddress(const Endpoint& endpoint, const MonitorToken& token) {
  std::string text = std::to_string(endpoint.port) + " ";
  for (const uint8_t byte : token) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text + " " + endpoint.host;
}

MonitorToken MonitorProof(const std::string& secret, const MonitorToken& token) {
  const Digest digest =
      Proof(secret, "monitor", {reinterpret_cast<const char*>(token.data()), token.size()});
  MonitorToken proof;
  std::copy_n(digest.begin(), proof.size(), proof.begin());
  return proof;
}

Result<MonitorAddress> ParseMonitorAddress(const std::string& text) {
  MonitorAddress address;
  std::istringstream in(text);
  std::string token;
  const bool read =
      static_cast<bool>(in >> address.endpoint.port >> token >> address.endpoint.host);
  bool valid = read && token.size() == 2 * address.token.size() && address.endpoint.port > 0;
  for (size_t i = 0; valid && i < address.token.size(); ++i) {
    const char* digits = token.data() + 2 * i;
    const auto parsed = std::from_chars(digits, digits + 2, address.token[i], 16);
    valid = parsed.ec == std::errc() && parsed.ptr == digits + 2;
  }
  if (valid) return address;
  return Status(Code::kConfig,
                "the store's key 'monitor' holds no address of rank 0's monitor: do two groups "
                "share a store without prefixes?");
}

Result<std::unique_ptr<Monitor>> MakeSocketMonitor(int rank, int size,
                                                   const std::shared_ptr<Store>& store,
                                                   const Monitor::Options& options,
                                                   Monitor::OnFailure on_failure) {
  if (options.heartbeat.count() < 1 || options.heartbeat_timeout < 2 * options.heartbeat)
    return Status(Code::kConfig, "monitor: heartbeat timeout of " +
                                     std::to_string(options.heartbeat_timeout.count()) +
                                     " ms with a heartbeat of " +
                                     std::to_string(options.heartbeat.count()) +
                                     " ms: expected at least two heartbeats");
  CHECK(rank >= 0 && rank < size) << rank << " of " << size;
  if (rank == 0) return MakeHubMonitor(size, store, options, std::move(on_failure));
  return MakeSpokeMonitor(rank, size, store, options, std::move(on_failure));
}

}  // namespace samara
