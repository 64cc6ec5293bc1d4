// A store by which ranks exchange a few small values by name before they are connected.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"

namespace samara {

// Thread safety: every method may be called from any thread. Values are small (addresses, names).
class Store {
 public:
  virtual ~Store() = default;
  virtual Status Set(const std::string& key, std::string_view value) = 0;
  // Blocks until the key is there; kUnavailable after `timeout`.
  virtual Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Adds to a counter that starts at 0 and returns the sum; kConfig when the key holds no counter
  // or the sum would not fit. A counter is also there for Get, as decimal text.
  virtual Result<int64_t> Add(const std::string& key, int64_t amount) = 0;
  // The key is then as if it had never been set; OK when it has not.
  virtual Status Delete(const std::string& key) = 0;
};

// Status of Get after its timeout, in every store.
Status StoreTimeout(const std::string& key, std::chrono::milliseconds timeout);

// For ranks that are threads of one process.
std::shared_ptr<Store> MakeMemoryStore();
// The same store with `prefix` before every key.
std::shared_ptr<Store> WithPrefix(std::shared_ptr<Store> store, std::string prefix);

}  // namespace samara
