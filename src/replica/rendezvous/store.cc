#include "replica/rendezvous/store.h"

#include <map>
#include <utility>

#include "core/log.h"
#include "core/mutex.h"
#include "core/parse_number.h"

namespace samara {
namespace {

class MemoryStore : public Store {
 public:
  Status Set(const std::string& key, std::string_view value) override {
    {
      const MutexLock lock(mu_);
      values_.insert_or_assign(key, std::string(value));
    }
    changed_.NotifyAll();
    return Status::Ok();
  }

  Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override {
    MutexLock lock(mu_);
    if (!changed_.WaitFor(mu_, timeout, [&]() REQUIRES(mu_) { return values_.count(key) != 0; }))
      return StoreTimeout(key, timeout);
    return values_.at(key);
  }

  Result<int64_t> Add(const std::string& key, int64_t amount) override {
    int64_t sum = 0;
    {
      const MutexLock lock(mu_);
      std::string& value = values_[key];
      const auto before = value.empty() ? 0 : ParseNumber<int64_t>(value);
      if (!before || __builtin_add_overflow(*before, amount, &sum)) return NoCounter(key, value);
      value = std::to_string(sum);
    }
    changed_.NotifyAll();
    return sum;
  }

  Status Delete(const std::string& key) override {
    const MutexLock lock(mu_);
    values_.erase(key);
    return Status::Ok();
  }

 private:
  static Status NoCounter(const std::string& key, const std::string& value) {
    return {Code::kConfig, "store: " + EscapeControl(key) + " holds '" +
                               EscapeControl(value.substr(0, 40)) +
                               "': expected a counter with room for the sum"};
  }

  Mutex mu_;
  CondVar changed_;  // signalled on every change of values_
  // counters as decimal text, as c10d's stores have them
  std::map<std::string, std::string> values_ GUARDED_BY(mu_);
};

class PrefixedStore : public Store {
 public:
  PrefixedStore(std::shared_ptr<Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}

  Status Set(const std::string& key, std::string_view value) override {
    return store_->Set(prefix_ + key, value);
  }
  Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_->Get(prefix_ + key, timeout);
  }
  Result<int64_t> Add(const std::string& key, int64_t amount) override {
    return store_->Add(prefix_ + key, amount);
  }
  Status Delete(const std::string& key) override { return store_->Delete(prefix_ + key); }

 private:
  const std::shared_ptr<Store> store_;
  const std::string prefix_;
};

}  // namespace

Status StoreTimeout(const std::string& key, std::chrono::milliseconds timeout) {
  return {Code::kUnavailable, "store: no rank has set " + EscapeControl(key) + " within " +
                                  std::to_string(timeout.count()) + " ms"};
}

std::shared_ptr<Store> MakeMemoryStore() { return std::make_shared<MemoryStore>(); }

std::shared_ptr<Store> WithPrefix(std::shared_ptr<Store> store, std::string prefix) {
  return std::make_shared<PrefixedStore>(std::move(store), std::move(prefix));
}

}  // namespace samara
