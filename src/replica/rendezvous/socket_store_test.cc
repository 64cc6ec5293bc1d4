// The store over TCP: what every store promises, and what strangers cannot do to it.
#include "replica/rendezvous/socket_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/thread.h"
#include "replica/rendezvous/store_wire.h"

namespace samara::socket_store_test {
namespace {

using namespace std::chrono_literals;

constexpr char kSecret[] = "of this launch";

std::shared_ptr<Store> Served(const std::string& host = "127.0.0.1", uint16_t port = 0) {
  return MakeSocketStore({host, port}, /*serve=*/true, kSecret, 20s).ValueOrThrow();
}

class SocketStoreTest : public ::testing::Test {
 protected:
  const std::unique_ptr<StoreServer> server_ =
      ServeStore(ListenAt("127.0.0.1").ValueOrThrow(), kSecret);
  Result<std::shared_ptr<Store>> Connect(const std::string& secret = kSecret) const {
    return ConnectToStore(server_->endpoint(), secret, 20s);
  }
  OwnedFd Stranger() const { return ConnectTo(server_->endpoint(), 5s).ValueOrThrow(); }
};

// Whether the peer closes within `timeout`, whatever it says before.
bool Closes(int fd, std::chrono::milliseconds timeout) {
  const SteadyTime deadline = Now() + timeout;
  char bytes[256];
  while (Now() < deadline) {
    const ssize_t n = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

TEST_F(SocketStoreTest, RanksShareWhatTheySet) {
  const auto one = *Connect(), other = *Connect();
  ASSERT_TRUE(one->Set("large", std::string(5'000'000, 'x')).ok());
  EXPECT_EQ(other->Get("large", 20s)->size(), 5'000'000u);
  EXPECT_EQ(*one->Add("count", 2), 2);
  EXPECT_EQ(*other->Add("count", 3), 5);
  const auto text = other->Add("large", 1);
  EXPECT_EQ(text.status().code(), Code::kConfig);
}

TEST_F(SocketStoreTest, AnotherSecretIsRefusedAndChangesNothing) {
  const auto mine = *Connect();
  for (const std::string secret : {"", "of another launch"}) {
    const auto other = Connect(secret);
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.status().code(), Code::kCannotCreate);
    EXPECT_NE(other.status().message().find("another launch has this port"), std::string::npos)
        << other.status().message();
  }
  ASSERT_TRUE(mine->Set("key", "value").ok());
  EXPECT_EQ(*mine->Get("key", 1s), "value");
}

TEST_F(SocketStoreTest, ARequestWithoutAProofIsNotRead) {
  const auto mine = *Connect();
  const OwnedFd stranger = Stranger();
  std::string set = Encode(StoreRequest{StoreOperation::kSet, "key", "poison", 0});
  set.resize(2 * sizeof(StoreIntroduction), '\0');
  ASSERT_EQ(::send(stranger.get(), set.data(), set.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(set.size()));
  EXPECT_TRUE(Closes(stranger.get(), 5s));
  EXPECT_FALSE(mine->Get("key", 1ms).ok());
}

// Reads and writes of `fd` wait for five seconds at most.
void MakeBlocking(const OwnedFd& fd) {
  timeval limit{.tv_sec = 5, .tv_usec = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::fcntl(fd.get(), F_SETFL, 0);
}

template <typename T>
T ReceiveWhole(int fd) {
  T value;
  EXPECT_EQ(::recv(fd, &value, sizeof value, MSG_WAITALL), static_cast<ssize_t>(sizeof value));
  return value;
}

void SendWhole(int fd, std::string_view bytes) {
  EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

template <typename T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// One that knows the secret, and what it sends is no request.
TEST_F(SocketStoreTest, ARequestThatIsNoneEndsItsConnectionAlone) {
  const auto mine = *Connect();
  const std::string request = Encode(StoreRequest{StoreOperation::kSet, "key", "value", 0});
  std::string unknown = request, shorter = request;
  unknown[sizeof(uint32_t)] = 9;
  shorter[0] = static_cast<char>(shorter[0] - 1);
  const uint32_t huge = kStoreRecordMax + 1;
  for (const std::string& bytes : {unknown, shorter, Sized(request.substr(sizeof(uint32_t)) + "x"),
                                   Sized(""), std::string(BytesOf(huge))}) {
    const OwnedFd fd = Stranger();
    MakeBlocking(fd);
    StoreIntroduction introduction;
    introduction.proof = StoreProof(kSecret, "client", ReceiveWhole<StoreGreeting>(fd.get()).nonce,
                                    introduction.nonce);
    SendWhole(fd.get(), BytesOf(introduction));
    EXPECT_NE(ReceiveWhole<Digest>(fd.get()), Digest{});
    SendWhole(fd.get(), bytes);
    EXPECT_TRUE(Closes(fd.get(), 5s));
  }
  EXPECT_FALSE(mine->Get("key", 1ms).ok());
  ASSERT_TRUE(mine->Set("key", "value").ok());
}

// Whatever comes in single bytes is read when it is whole.
TEST_F(SocketStoreTest, ARequestMayComeInPieces) {
  const OwnedFd fd = Stranger();
  MakeBlocking(fd);
  const auto send_slowly = [&](std::string_view bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      SendWhole(fd.get(), bytes.substr(i, 1));
      if (i < 6) std::this_thread::sleep_for(2ms);
    }
  };
  StoreIntroduction introduction;
  introduction.proof = StoreProof(kSecret, "client", ReceiveWhole<StoreGreeting>(fd.get()).nonce,
                                  introduction.nonce);
  send_slowly(BytesOf(introduction));
  EXPECT_NE(ReceiveWhole<Digest>(fd.get()), Digest{});
  send_slowly(Encode(StoreRequest{StoreOperation::kSet, "key", "value", 0}));
  (void)ReceiveWhole<uint32_t>(fd.get());
  const auto mine = *Connect();
  EXPECT_EQ(*mine->Get("key", 1s), "value");
  EXPECT_FALSE(mine->Get("none", 0ms).ok()) << "answered at once";
}

// A program in the place of rank 0's store. `answer`: to the first request of one that has proved
// itself.
Status AskedOf(const StoreGreeting& greeting, const std::string& answer) {
  const Listener listener = ListenAt("127.0.0.1").ValueOrThrow();
  Status status;
  Thread client("client", [&] {
    auto store = ConnectToStore(listener.endpoint, kSecret, 1s);
    status = store.ok() ? (*store)->Set("key", "value") : store.status();
  });
  OwnedFd fd;
  for (auto accepted = AcceptFrom(listener); fd.get() < 0; accepted = AcceptFrom(listener))
    if (accepted.ok()) fd = std::move(*accepted);
  MakeBlocking(fd);
  SendWhole(fd.get(), BytesOf(greeting));
  if (greeting.magic == StoreGreeting().magic) {
    const auto introduction = ReceiveWhole<StoreIntroduction>(fd.get());
    SendWhole(fd.get(), BytesOf(StoreProof(kSecret, "server", greeting.nonce, introduction.nonce)));
    (void)ReceiveWhole<uint32_t>(fd.get());
    SendWhole(fd.get(), answer);
  }
  fd.Close();
  client.Join();
  return status;
}

TEST(SocketStoreEndTest, AnAnswerThatIsNoneIsSaid) {
  const std::string reply = Encode(StoreReply{0, ""});
  const uint32_t huge = kStoreRecordMax + 1;
  for (const std::string& answer : {std::string(BytesOf(huge)), Sized(""), Sized("abc"),
                                    Sized(reply.substr(sizeof(uint32_t)) + "x")}) {
    const Status status = AskedOf({}, answer);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_EQ(status.message(), "the store of the ranks: an answer that is none");
  }
  for (const std::string& answer : {std::string(), reply.substr(0, 3), reply.substr(0, 9)}) {
    const Status status = AskedOf({}, answer);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    // a close with unread bytes is a reset
    EXPECT_EQ(status.message().find("the store of the ranks: "), 0U) << status.message();
  }
  EXPECT_EQ(AskedOf({}, Encode(StoreReply{78, "why"})).code(), Code::kConfig);
  EXPECT_EQ(AskedOf({}, Encode(StoreReply{70, "why"})).message(), "why");
  StoreGreeting other;
  other.magic[7] = '2';
  const Status status = AskedOf(other, "");
  EXPECT_EQ(status.code(), Code::kCannotCreate);
  EXPECT_NE(status.message().find(": another program has this port: choose another one"),
            std::string::npos);
}

TEST_F(SocketStoreTest, AProofIsOfNoUseOnAnotherConnection) {
  const auto greet = ReceiveWhole<StoreGreeting>;
  const OwnedFd first = Stranger(), second = Stranger();
  MakeBlocking(first), MakeBlocking(second);
  StoreIntroduction introduction;
  introduction.proof = StoreProof(kSecret, "client", greet(first.get()).nonce, introduction.nonce);
  (void)greet(second.get());
  for (const int fd : {second.get(), first.get()}) {
    ASSERT_EQ(::send(fd, &introduction, sizeof introduction, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof introduction));
    Digest answer{};
    ASSERT_EQ(::recv(fd, &answer, sizeof answer, MSG_WAITALL), static_cast<ssize_t>(sizeof answer));
    EXPECT_EQ(answer == Digest{}, fd == second.get());
  }
}

TEST_F(SocketStoreTest, IdleConnectionsDelayNoOthers) {
  const auto time = [&] {
    const SteadyTime start = Now();
    const auto store = *Connect();
    EXPECT_TRUE(store->Set("key", "value").ok());
    EXPECT_EQ(*store->Get("key", 5s), "value");
    return SecondsSince(start);
  };
  const double alone = time();
  std::vector<OwnedFd> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(Stranger());  // more than are kept
  EXPECT_LT(time(), alone + 1);
  EXPECT_TRUE(Closes(idle.front().get(), 5s));  // the oldest made room
  EXPECT_FALSE(Closes(idle.back().get(), 10ms));
}

TEST_F(SocketStoreTest, AWaitingGetDelaysNoOtherOfTheSameRank) {
  const auto store = *Connect();
  std::string late;
  {
    Thread waits("waits", [&] { late = store->Get("late", 20s).ValueOrThrow(); });
    const SteadyTime start = Now();
    ASSERT_TRUE(store->Set("other", "here").ok());
    EXPECT_LT(SecondsSince(start), 5.0);
    ASSERT_TRUE(store->Set("late", "here").ok());
  }
  EXPECT_EQ(late, "here");
}

TEST(SocketStoreEndTest, AStoreThatEndsIsUnavailable) {
  auto server = ServeStore(ListenAt("").ValueOrThrow(), kSecret);
  const auto store = *ConnectToStore(server->endpoint(), kSecret, 20s);
  ASSERT_TRUE(store->Set("key", "value").ok());
  server.reset();
  EXPECT_EQ(store->Get("key", 5s).status().code(), Code::kUnavailable);
}

TEST(SocketStoreEndTest, APortThatIsTakenIsSaid) {
  // localhost is 127.0.0.1 or ::1, by system
  for (const auto& [at, host] : {std::pair<std::string, std::string>{"127.0.0.1", "127.0.0.1"},
                                 {"localhost", "localhost"},
                                 {"127.0.0.1", "this-host-by-name"}}) {
    const Listener taken = ListenAt(at).ValueOrThrow();
    const auto store = MakeSocketStore({host, taken.endpoint.port}, true, kSecret, 1s);
    EXPECT_EQ(store.status().code(), Code::kCannotCreate) << host;
    EXPECT_NE(store.status().message().find("another program has it"), std::string::npos)
        << store.status().message();
  }
}

TEST(SocketStoreEndTest, ANameIsServedOnEveryInterface) {
  const uint16_t port = ListenAt("").ValueOrThrow().endpoint.port;  // free again
  const auto store = Served("this-host-by-name", port);
  EXPECT_TRUE(ConnectToStore({"127.0.0.1", port}, kSecret, 5s).ok());
}

TEST(SocketStoreEndTest, AMissingServerIsReportedAfterTheTimeout) {
  const uint16_t port = ListenAt("").ValueOrThrow().endpoint.port;
  const auto store = ConnectToStore({"127.0.0.1", port}, kSecret, 50ms);
  EXPECT_EQ(store.status().code(), Code::kUnavailable);
  EXPECT_NE(store.status().message().find("no store at 127.0.0.1"), std::string::npos);
}

}  // namespace
}  // namespace samara::socket_store_test
