// SPDX-License-Identifier: Apache-2.0 OR MIT
// A named thread that is always joined and that never lets an exception escape unseen.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace samara {

// Runs `body` on a thread called `name` (at most 15 characters show in tools). The destructor
// joins: whoever owns a Thread first makes its body return. An exception that leaves the body is
// logged and ends the process as a bug would. Neither copied nor moved: the thread holds its
// address.
class Thread {
 public:
  Thread(std::string name, std::function<void()> body);
  ~Thread() { Join(); }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  void Join();

 private:
  std::thread thread_;
};

}  // namespace samara
