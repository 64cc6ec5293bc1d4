// Messages that a learner process must not send: the actor says so and ends the stream.
#include "fleet/remote/actor.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/log.h"
#include "env/dummy.h"
#include "fleet/fleet.h"
#include "fleet/remote/memory_link_test_util.h"

namespace samara {
namespace {

constexpr uint64_t kIncarnation = 5;

// Keeps how the actor ended it.
class EndedStream : public RemoteStream {
 public:
  void Send(Message, Message) override { ++sent; }
  void End(const RemoteEnd& given, bool) override { end = given; }
  int sent = 0;
  std::optional<RemoteEnd> end;
};

// An actor of two slots with two discrete actions and a stream that is open.
class RemoteActorTest : public testing::Test {
 protected:
  RemoteActorTest()
      : fleet_(MakeThreadFleet([] { return MakeDummyEnvironment({}); }, 2, 0).ValueOrThrow()),
        actor_(*fleet_) {
    SetLogLevel(LogLevel::kWarning);
    actor_.Open(stream_);
  }
  ~RemoteActorTest() override { SetLogLevel(LogLevel::kInfo); }
  bool Receive(const std::string& message) { return actor_.Receive(Cut(message, 7)); }
  static std::string Welcome(uint32_t slots = 2) {
    return WriteWelcome({.incarnation = kIncarnation, .slots = slots});
  }
  static std::string Commands(std::vector<CommandRow> rows, uint64_t incarnation = kIncarnation) {
    const MessageHeader header{RemoteKind::kCommands, static_cast<uint32_t>(rows.size()),
                               incarnation};
    std::string message(reinterpret_cast<const char*>(&header), sizeof header);
    return message.append(reinterpret_cast<const char*>(rows.data()),
                          rows.size() * sizeof(CommandRow));
  }
  static CommandRow Reset(uint32_t slot) {
    CommandRow row{};
    row.slot = slot, row.kind = RemoteCommand::kReset;
    return row;
  }
  static CommandRow Act(uint32_t slot, uint32_t step, int32_t action) {
    CommandRow row{};
    row.slot = slot, row.kind = RemoteCommand::kAct, row.step = step, row.argument = action;
    return row;
  }
  void ExpectProtest(const std::string& message, const std::string& what) {
    EXPECT_FALSE(Receive(message)) << what;
    ASSERT_TRUE(stream_->end.has_value()) << what;
    EXPECT_EQ(stream_->end->code, RemoteCode::kInvalidArgument);
    EXPECT_EQ(stream_->end->message, "the learner process sent " + what);
    stream_->end.reset();
  }

  const std::unique_ptr<Fleet> fleet_;
  const std::shared_ptr<EndedStream> stream_ = std::make_shared<EndedStream>();
  RemoteActor actor_;
};

TEST_F(RemoteActorTest, RefusesWhatMustNotComeBeforeWelcome) {
  ExpectProtest("", "a message without a header");
  ExpectProtest(std::string(15, '\1'), "a message without a header");
  ExpectProtest(Commands({}), "kind 4 where it means nothing");
  std::string other = Welcome();
  other[0] = 9;
  ExpectProtest(other, "kind 9 where it means nothing");
  ExpectProtest(Welcome(3), "3 slots granted");
  ExpectProtest(Welcome() + "x", "message of a peer: a text of " +
                                     std::to_string(Welcome().size() - 15) + " bytes, " +
                                     std::to_string(Welcome().size() - 16) +
                                     " announced, at most 1048576");
  ExpectProtest(WriteWelcome({.incarnation = 0, .slots = 1}),
                "message of a peer: incarnation: expected an integer, 1..9223372036854775807");
  EXPECT_TRUE(Receive(Welcome()));
  ExpectProtest(Welcome(), "kind 3 where it means nothing");
}

TEST_F(RemoteActorTest, RefusesCommandsThatItsSlotsDoNotExpect) {
  ASSERT_TRUE(Receive(Welcome()));
  EXPECT_TRUE(Receive(Commands({})));  // a sign of life
  ExpectProtest(Commands({}, 6), "commands of incarnation 6");
  ExpectProtest(Commands({Reset(0), Reset(0), Reset(1)}), "3 commands in 144 bytes");
  ExpectProtest(Commands({Reset(0)}) + "x", "1 commands in 49 bytes");
  const std::string unexpected = "a command that its slot does not expect";
  ExpectProtest(Commands({Reset(2)}), unexpected);
  ExpectProtest(Commands({Act(0, 1, 0)}), unexpected);  // before the first reset
  CommandRow unknown = Reset(0);
  unknown.kind = static_cast<RemoteCommand>(3);
  ExpectProtest(Commands({unknown}), unexpected);
  ExpectProtest(Commands({Reset(0), Reset(0)}), unexpected);  // the first is not answered
}

TEST_F(RemoteActorTest, RefusesActionsOutOfTurnOrOutOfRange) {
  ASSERT_TRUE(Receive(Welcome()));
  ASSERT_TRUE(Receive(Commands({Reset(0)})));  // the fleet answers at once
  const auto n = static_cast<int32_t>(fleet_->spec().action.n);
  for (const auto& [step, action] :
       {std::pair{1U, -1}, std::pair{1U, n}, std::pair{0U, 0}, std::pair{2U, 0}})
    ExpectProtest(Commands({Act(0, step, action)}), "a command that its slot does not expect");
  EXPECT_TRUE(Receive(Commands({Act(0, 1, n - 1)})));
}

// A simulator on a thread of its own owes its answer to the connection before.
TEST_F(RemoteActorTest, AResetWaitsForTheAnswerToTheConnectionBefore) {
  const auto fleet =
      MakeThreadFleet([] { return MakeDummyEnvironment({}); }, 2, /*threads=*/1).ValueOrThrow();
  RemoteActor actor(*fleet);
  const auto receive = [&](const std::string& message) { return actor.Receive(Cut(message, 9)); };
  actor.Open(stream_);
  ASSERT_TRUE(receive(Welcome()) && receive(Commands({Reset(0)})));
  EXPECT_FALSE(receive(Commands({Act(0, 1, 0)})));  // before it has answered
  actor.Close({RemoteCode::kUnavailable, "the link broke"});
  EXPECT_FALSE(receive(""));  // to a stream that is gone
  EXPECT_FALSE(receive(WriteShutdown("?")));
  actor.Open(stream_);
  ASSERT_TRUE(receive(Welcome()));
  EXPECT_TRUE(receive(Commands({Reset(0)})));
  actor.Close({RemoteCode::kUnavailable, "the link broke again"});
  EXPECT_EQ(actor.Pump(nullptr).end.message, "the link broke again");
}

TEST_F(RemoteActorTest, NothingIsReadAfterAShutdownNotice) {
  EXPECT_FALSE(Receive(WriteShutdown("training has finished")));
  ASSERT_TRUE(stream_->end.has_value());
  EXPECT_EQ(stream_->end->code, RemoteCode::kOk);
  stream_->end.reset();
  EXPECT_FALSE(Receive(Welcome()));
  EXPECT_FALSE(stream_->end.has_value());
}

}  // namespace
}  // namespace samara
