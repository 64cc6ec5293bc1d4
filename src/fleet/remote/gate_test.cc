#include "fleet/remote/gate.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "fleet/remote/peer_owner.h"

namespace samara {
namespace {

constexpr uid_t kNobody = 65534;

int Connect(int port, const char* host = "127.0.0.1") {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, host, &to.sin_addr);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return fd;
}

std::string NameOf(int fd) {
  sockaddr_in own{};
  socklen_t bytes = sizeof own;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes);
  return "ipv4:127.0.0.1:" + std::to_string(ntohs(own.sin_port));
}

// Whether the other end closes `fd` before anything is read.
bool Closed(int fd, int seconds = 5) {
  const timeval patience{.tv_sec = seconds, .tv_usec = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char byte = 0;
  const ssize_t n = ::recv(fd, &byte, 1, 0);
  return n == 0 || (n < 0 && errno != EAGAIN);
}

bool Until(const std::function<bool()>& condition) {
  for (int i = 0; i < 500 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

// A gate, and in place of a transport the sockets that it lets through.
class GateTest : public testing::Test {
 protected:
  void Open(const GateOptions& options, const std::string& address = "127.0.0.1:0") {
    auto gate = Gate::Listen(*ParseAddress(address), options);
    ASSERT_TRUE(gate.ok()) << gate.status().message();
    gate_ = std::move(*gate);
  }
  void Start() {
    gate_->Start([this](int fd, int) {
      const std::lock_guard lock(mu_);
      passed_.push_back(fd);
    });
  }
  void Open(const GateOptions& options, bool) {
    Open(options);
    Start();
  }
  ~GateTest() override {
    if (gate_ != nullptr) gate_->Stop();
    for (const int fd : passed_) ::close(fd);
    for (const int fd : connected_) ::close(fd);
  }
  int Come() { return connected_.emplace_back(Connect(gate_->port())); }
  size_t passed() {
    const std::lock_guard lock(mu_);
    return passed_.size();
  }
  uint64_t Drops(const std::string& reason) { return gate_->drops().at(reason); }

  std::unique_ptr<Gate> gate_;
  std::mutex mu_;
  std::vector<int> passed_;  // guarded by mu_
  std::vector<int> connected_;
};

// Runs `body` in a process of another user and waits for it.
void AsNobody(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(kNobody) == 0 && ::setuid(kNobody) == 0) body();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
}

TEST_F(GateTest, RefusesProcessesOfOtherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  Open({.same_user = true}, true);
  Come();
  ASSERT_TRUE(Until([&] { return passed() == 1; }));
  int result[2];
  ASSERT_EQ(::pipe(result), 0);
  AsNobody([&] {
    const bool closed = Closed(Connect(gate_->port()));
    if (::write(result[1], &closed, sizeof closed) < 0) ::_exit(1);
  });
  bool closed = false;
  ASSERT_EQ(::read(result[0], &closed, sizeof closed), static_cast<ssize_t>(sizeof closed));
  EXPECT_TRUE(closed);
  EXPECT_EQ(Drops("stranger"), 1U);
  EXPECT_EQ(passed(), 1U);
}

TEST_F(GateTest, RefusesSocketsThatNoProcessHolds) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  Open({.same_user = true});
  // the kernel says root of a socket without a process
  AsNobody([&] {
    const int fd = Connect(gate_->port());
    const std::vector<char> much(100'000);
    if (::send(fd, much.data(), much.size(), MSG_DONTWAIT) < 0) ::_exit(1);
    ::close(fd);
  });
  Start();
  ASSERT_TRUE(Until([&] { return Drops("stranger") == 1; }));
  EXPECT_EQ(passed(), 0U);
}

TEST_F(GateTest, KnowsTheOwnerFromTheKernelAndFromItsTables) {
  Open({.same_user = true}, true);
  Come();
  const int v6 = connected_.emplace_back(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 to{};  // an IPv4 connection of a socket that speaks both
  to.sin6_family = AF_INET6, to.sin6_port = htons(static_cast<uint16_t>(gate_->port()));
  ::inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr);
  ASSERT_EQ(::connect(v6, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  ASSERT_TRUE(Until([&] { return passed() == 2; }));
  for (const int fd : passed_) {
    EXPECT_EQ(PeerOwner(fd), ::geteuid());
    EXPECT_EQ(TEST_PeerOwnerByTable(fd), ::geteuid());
  }
}

TEST_F(GateTest, KnowsTheOwnerOfUnixSockets) {
  const std::string folder = "/tmp/samara-gate-" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  Open({.same_user = true}, "unix:" + folder + "/s");
  Start();
  const int fd = connected_.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::snprintf(to.sun_path, sizeof to.sun_path, "%s/s", folder.c_str());
  ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  ASSERT_TRUE(Until([&] { return passed() == 1; }));
  EXPECT_EQ(PeerOwner(passed_[0]), ::geteuid());
  gate_->Stop();
  EXPECT_FALSE(std::filesystem::exists(folder + "/s"));
  std::filesystem::remove(folder);
}

TEST_F(GateTest, EndsConnectionsThatSendMuchWithoutHello) {
  Open({.bytes = 10'000, .kept_out = 0.3}, true);
  const int quiet = Come();
  const int loud = Come();
  ASSERT_TRUE(Until([&] { return passed() == 2; }));
  const std::vector<char> much(10'000, 'x');
  ASSERT_EQ(::send(loud, much.data(), much.size(), 0), 10'000);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(gate_->watched(), 2U) << "as much as is allowed";
  ASSERT_EQ(::send(loud, much.data(), 1, 0), 1);
  EXPECT_TRUE(Closed(loud));
  EXPECT_TRUE(Closed(quiet)) << "another one of that address that is not admitted";
  EXPECT_EQ(Drops("flood"), 1U);
  EXPECT_EQ(gate_->watched(), 0U);
  // the transport reads nothing of it
  char byte = 0;
  for (const int fd : passed_) EXPECT_LE(::recv(fd, &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_TRUE(Closed(Come())) << "kept out";
  EXPECT_EQ(Drops("crowded"), 1U);
  std::this_thread::sleep_for(std::chrono::milliseconds(350));
  Come();
  EXPECT_TRUE(Until([&] { return passed() == 3; }));
}

TEST_F(GateTest, AdmittedConnectionsMaySendAnything) {
  Open({.bytes = 1000, .calls = 3, .seconds = 0.5}, true);
  const int fd = Come();
  ASSERT_TRUE(Until([&] { return passed() == 1; }));
  gate_->BeginCall(NameOf(fd));
  gate_->Admit(NameOf(fd));
  EXPECT_EQ(gate_->watched(), 0U);
  for (int i = 0; i < 100; ++i) gate_->BeginCall(NameOf(fd));
  const std::vector<char> much(100'000, 'x');
  ASSERT_EQ(::send(fd, much.data(), much.size(), 0), 100'000);
  EXPECT_FALSE(Closed(fd, 2));
  EXPECT_EQ(Drops("flood") + Drops("expired"), 0U);
}

TEST_F(GateTest, EndsConnectionsWithManyStreamsOrNone) {
  Open({.calls = 3, .seconds = 0.5, .kept_out = 0}, true);
  const int busy = Come();
  ASSERT_TRUE(Until([&] { return passed() == 1; }));
  for (int i = 0; i < 3; ++i) gate_->BeginCall(NameOf(busy));
  gate_->BeginCall("ipv4:127.0.0.1:1");  // one that is not watched
  EXPECT_EQ(gate_->watched(), 1U);
  gate_->BeginCall(NameOf(busy));
  EXPECT_TRUE(Closed(busy));
  EXPECT_EQ(Drops("flood"), 1U);
  EXPECT_TRUE(Closed(Come())) << "silent";
  EXPECT_EQ(Drops("expired"), 1U);
}

TEST_F(GateTest, LimitsConnectionsOfOneAddress) {
  Open({.crowd = 4, .per_second = 10}, true);
  for (int i = 0; i < 4; ++i) Come();
  ASSERT_TRUE(Until([&] { return passed() == 4; }));
  EXPECT_TRUE(Closed(Come()));
  EXPECT_EQ(Drops("crowded"), 1U);
  // those that end, and those that are admitted, make room
  for (int i = 0; i < 2; ++i) {
    const std::lock_guard lock(mu_);
    ::shutdown(passed_[static_cast<size_t>(i)], SHUT_RDWR);
  }
  for (int i = 0; i < 2; ++i) {
    ::close(connected_[static_cast<size_t>(i)]);
    connected_[static_cast<size_t>(i)] = ::dup(connected_[2]);
  }
  ASSERT_TRUE(Until([&] { return gate_->watched() == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  Come();
  EXPECT_TRUE(Until([&] { return passed() == 5; }));
}

TEST(Gate, NamesATakenAddress) {
  const auto one = Gate::Listen(*ParseAddress("127.0.0.1:0"), {});
  ASSERT_TRUE(one.ok());
  const auto two = Gate::Listen(*ParseAddress("127.0.0.1:" + std::to_string((*one)->port())), {});
  ASSERT_FALSE(two.ok());
  EXPECT_EQ(two.status().code(), Code::kCannotCreate);
  EXPECT_NE(two.status().message().find("another program holds the address"), std::string::npos);
}

}  // namespace
}  // namespace samara
