// The learner process's listening sockets, in front of the transport: decides which connections
// reach it, and ends those that send much before their actor is accepted.
//
// gRPC limits neither connections nor what an unknown peer makes it keep: before version 1.60 a
// stream that is opened and reset at once costs it kilobytes. The gate does no work for a message:
// it sees a connection when it comes, each stream when it begins, and, until Admit, what the kernel
// counts of its bytes.
//
// Thread safety: every method may be called from any thread.
// Invariant: a connection is watched from before the transport has it until Admit, its end, or its
// refusal; the watched ones are the only ones whose descriptors the gate holds.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/mutex.h"
#include "core/status.h"
#include "core/thread.h"
#include "fleet/remote/address.h"

namespace samara {

struct GateOptions {
  bool same_user = false;   // only processes of this user and of root may connect
  size_t crowd = 128;       // of one address: new connections in a burst, and watched ones
  double per_second = 100;  // new connections of one address in the long run
  size_t bytes = 64 << 10;  // that a watched connection may send: what a Hello needs
  uint32_t calls = 64;      // streams that a watched connection may open
  double seconds = 60;      // until a connection is admitted
  double kept_out = 10;     // s that an address is refused after a connection sent too much
};

class Gate {
 public:
  // A socket that was accepted, which the callee owns, and the one that it came by.
  using Pass = std::function<void(int fd, int listener)>;

  // Listens; connections wait for Start. kCannotCreate: the address is taken or not this machine's.
  static Result<std::unique_ptr<Gate>> Listen(const RemoteAddress& address,
                                              const GateOptions& options);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  int port() const { return port_; }  // 0 of a Unix socket
  void Start(Pass pass);
  void Stop();  // accepts nothing from now on

  // `peer` is the transport's name of a connection's other end, such as "ipv4:10.0.0.1:4711"; one
  // that is not watched means nothing here.
  void BeginCall(std::string_view peer);  // it opened a stream
  void Admit(std::string_view peer);      // its actor was accepted: it is watched no more

  // How many connections were refused or ended, by reason.
  std::map<std::string, uint64_t> drops() const;
  size_t watched() const;

 private:
  enum class Drop : uint8_t { kStranger, kCrowded, kFlood, kSlow, kCount };
  struct Watched {
    int fd = -1;  // the gate's own
    std::string peer, address;
    SteadyTime since;
    uint64_t bytes = 0;  // received
    uint32_t calls = 0;
  };
  struct Address {
    double tokens = 0;  // connections that may come at once
    SteadyTime filled;
    size_t watched = 0;
    SteadyTime kept_out_until;
  };

  Gate(const RemoteAddress& address, const GateOptions& options)
      : address_(address), options_(options) {}
  Status OpenUnix();
  Status OpenTcp();
  Status AddListener(int family, const void* address, size_t bytes, int port);
  // The accepting thread. What it passes on may be worked at inside, so that another one watches.
  void AcceptAll();
  void Accept(int listener);
  void Take(int fd, int listener, const sockaddr_storage& from);
  bool IsOwn(int fd);                      // or it is refused
  bool Enter(const std::string& address);  // the same
  bool Watch(int fd, const sockaddr_storage& from, const std::string& address);
  // Waits while watched connections have sent much, so that one that is too much is ended before
  // the transport has another one.
  void WaitForOthers();
  // The watching thread.
  void CheckAll();
  void Check(uint64_t id, uint32_t events);
  void Sweep();
  Address& AddressOf(const std::string& name, SteadyTime now) REQUIRES(mu_);
  void Refuse(Drop drop, const std::string& line) REQUIRES(mu_);
  // If kFlood, those of its address end too.
  void End(uint64_t id, Drop drop, const std::string& why) REQUIRES(mu_);
  void Forget(uint64_t id) REQUIRES(mu_);
  // Counts what the connection has sent; false when it is gone or was ended.
  bool Count(uint64_t id) REQUIRES(mu_);

  // constant after Start
  const RemoteAddress address_;
  const GateOptions options_;
  int port_ = 0;
  std::vector<int> listeners_;
  int epoll_ = -1;  // of the watched ones
  int quit_ = -1;   // readable once both threads are to end
  Pass pass_;

  mutable Mutex mu_;
  CondVar forgotten_;  // signalled when sent_ becomes less
  // guarded by mu_
  std::map<uint64_t, Watched> watched_ GUARDED_BY(mu_);  // by a number that is never used again
  std::map<std::string, uint64_t, std::less<>> by_peer_ GUARDED_BY(mu_);
  std::map<std::string, Address> addresses_ GUARDED_BY(mu_);
  uint64_t next_ GUARDED_BY(mu_) = 1;
  uint64_t sent_ GUARDED_BY(mu_) = 0;  // by all watched ones
  uint64_t drops_[static_cast<size_t>(Drop::kCount)] GUARDED_BY(mu_) = {};
  uint32_t lines_ GUARDED_BY(mu_) = 0;  // logged since the last sweep

  std::unique_ptr<Thread> watching_, accepting_;
};

}  // namespace samara
