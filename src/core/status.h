// SPDX-License-Identifier: Apache-2.0 OR MIT
// Expected failures as values (Status, Result<T>) and set-up errors as the one exception type
// Error.
//
// A file, a peer or a user's data that is wrong returns a Status; a bug meets CHECK (check.h).
// Error is thrown only while setting up and caught in main, in the Python binding and at the top of
// a thread. The enumerators of Code are the process's exit codes, those of
// sysexits.h: schedulers act on them, so their values never change.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "core/check.h"

namespace samara {

enum class Code : int {
  kOk = 0,
  kUsage = 64,         // unknown command or option
  kBadData = 65,       // corrupt checkpoint, wrong hash
  kNoInput = 66,       // ROM, model, configuration or .venv missing
  kUnavailable = 69,   // a peer or an actor kept failing
  kInternal = 70,      // an invariant broke
  kNoResources = 71,   // no room for another thread, process or for more memory
  kCannotCreate = 73,  // folder or port held by another run
  kIoError = 74,       // disk full and other I/O
  kTryAgain = 75,      // preempted, state saved: requeue
  kNotPermitted = 77,
  kConfig = 78,  // bad configuration or protocol: never retry
};

// A failure, in one line: what was given, what was expected, what to do.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status Ok() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // "prefix: message", same code; unchanged when ok.
  Status Annotate(const std::string& prefix) const {
    return ok() ? *this : Status(code_, prefix + ": " + message_);
  }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// Thrown while setting up only; carries the status that main turns into a line and an exit code.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : Error(Status(code, message)) {}
  explicit Error(Status status)
      : std::runtime_error(status.message()), status_(std::move(status)) {}
  const Status& status() const { return status_; }

 private:
  Status status_;
};

inline void ThrowIfError(const Status& status) {
  if (!status.ok()) throw Error(status);
}

// A T or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    CHECK(!status_.ok()) << "a Result without a value needs a reason";
  }
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // REQUIRES: ok().
  T& operator*() { return Get(); }
  const T& operator*() const { return const_cast<Result*>(this)->Get(); }
  T* operator->() { return &Get(); }
  const T* operator->() const { return &const_cast<Result*>(this)->Get(); }
  // The value, or throws Error: for set-up code.
  T ValueOrThrow() && {
    ThrowIfError(status_);
    return std::move(*value_);
  }

 private:
  T& Get() {
    CHECK(value_.has_value()) << status_.message();
    return *value_;
  }
  std::optional<T> value_;
  Status status_;
};

#define SAMARA_CONCAT_INNER(a, b) a##b
#define SAMARA_CONCAT(a, b) SAMARA_CONCAT_INNER(a, b)
// Returns from the enclosing function when `expression` (a Status) is not ok.
#define RETURN_IF_ERROR(expression)                                             \
  do {                                                                          \
    if (::samara::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
// Declares `lhs` from a Result, or returns its Status.
#define ASSIGN_OR_RETURN(lhs, expression) \
  ASSIGN_OR_RETURN_INNER(SAMARA_CONCAT(result_, __LINE__), lhs, expression)
#define ASSIGN_OR_RETURN_INNER(result, lhs, expression) \
  auto result = (expression);                           \
  if (!result.ok()) return result.status();             \
  lhs = std::move(*result)

}  // namespace samara
