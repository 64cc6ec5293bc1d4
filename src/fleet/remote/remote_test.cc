// A remote fleet over a transport in memory: the contract of Fleet, and what a learner process does
// with peers that die, lie, repeat themselves or fall silent.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/log.h"
#include "env/dummy.h"
#include "fleet/fleet_test_util.h"
#include "fleet/remote/hub.h"
#include "fleet/remote/memory_link_test_util.h"

namespace samara {
namespace {

using Kind = SlotEvent::Kind;
using namespace std::chrono_literals;

std::unique_ptr<Fleet> LocalFleet(uint32_t slots, DummyOptions options = {}, uint32_t threads = 2) {
  return MakeThreadFleet([=] { return MakeDummyEnvironment(options); }, slots, threads)
      .ValueOrThrow();
}

class QuietTest : public testing::Test {
 protected:
  void SetUp() override { SetLogLevel(LogLevel::kWarning); }
  void TearDown() override { SetLogLevel(LogLevel::kInfo); }
};

// --- a hub and real actors

// Actors on threads of their own that connect again when their link breaks.
class Actors {
 public:
  Actors(RemoteHub& hub, DummyOptions options) : hub_(hub), options_(options) {}
  ~Actors() { Leave(); }
  void Add(uint32_t slots, size_t piece, uint32_t threads = 2) {
    auto crew = std::make_unique<Crew>();
    crew->fleet = LocalFleet(slots, options_, threads);
    crew->actor = std::make_unique<RemoteActor>(*crew->fleet);
    crew->piece = piece;
    crew->thread = std::make_unique<Thread>("actor", [this, c = crew.get()] { Live(*c); });
    crews_.push_back(std::move(crew));
  }
  void BreakLink(size_t i) {
    std::lock_guard lock(mu_);
    if (const auto link = crews_[i]->link.lock()) link->Break();
  }
  void Leave() {
    leave_ = true;
    crews_.clear();
  }

 private:
  struct Crew {
    std::unique_ptr<Fleet> fleet;
    std::unique_ptr<RemoteActor> actor;
    size_t piece = 0;
    NetworkThread network;
    std::weak_ptr<MemoryLink> link;
    std::unique_ptr<Thread> thread;
  };
  void Live(Crew& crew) {
    while (!leave_) {
      {
        std::lock_guard lock(mu_);
        const auto link = std::make_shared<MemoryLink>(hub_, *crew.actor, crew.network, crew.piece);
        crew.link = link;
        link->Connect();
      }
      if (crew.actor->Pump([this] { return leave_.load(); }).shutdown) return;
    }
  }

  RemoteHub& hub_;
  const DummyOptions options_;
  std::mutex mu_;  // guards the crews' links
  std::atomic<bool> leave_{false};
  std::vector<std::unique_ptr<Crew>> crews_;
};

struct Variant {
  bool bytes, discrete;
  size_t piece;  // bytes of the pieces that messages come in
};
class RemoteContractTest : public QuietTest, public testing::WithParamInterface<Variant> {};

TEST_P(RemoteContractTest, PlaysTheSameBitsAsALocalFleet) {
  const DummyOptions dummy{.bytes = GetParam().bytes, .discrete = GetParam().discrete};
  const auto local = LocalFleet(3, dummy);
  const auto expected = Player(*local).Play(30);
  RemoteHub hub({.spec = local->spec(), .slots = 5}, {});
  Actors actors(hub, dummy);
  actors.Add(2, GetParam().piece);
  actors.Add(3, GetParam().piece, /*threads=*/0);
  Player player(hub);
  EXPECT_EQ(player.Play(30), expected);
  EXPECT_EQ(player.surplus_events(), 0);
  EXPECT_EQ(hub.live(), 5U);
  for (const auto& [reason, count] : hub.drops()) EXPECT_EQ(count, 0U) << reason;
  actors.Leave();
}

INSTANTIATE_TEST_SUITE_P(Specs, RemoteContractTest,
                         testing::Values(Variant{false, true, 1 << 20}, Variant{false, false, 7},
                                         Variant{true, true, 1000}));

TEST_F(QuietTest, LinksThatBreakCostEpisodesAndNothingElse) {
  const auto local = LocalFleet(4);
  const auto expected = Player(*local).Play(400);
  RemoteHub hub({.spec = local->spec(), .slots = 4}, {});
  Actors actors(hub, {});
  actors.Add(2, 100);
  actors.Add(2, 100, /*threads=*/0);
  Player player(hub);
  uint64_t events = 0;
  const auto records = player.Play(400, [&](const SlotEvent&) {
    if (++events % 150 == 0) actors.BreakLink(events / 150 % 2);
  });
  EXPECT_EQ(records, expected);
  EXPECT_EQ(player.surplus_events(), 0);
  EXPECT_GE(hub.counters().respawns, 10U);
  EXPECT_GT(player.lost(), 0U);
  actors.Leave();
}

TEST_F(QuietTest, AShutdownNoticeEndsActors) {
  const auto local = LocalFleet(1);
  RemoteHub hub({.spec = local->spec(), .slots = 2}, {});
  RemoteActor actor(*local);
  NetworkThread network;
  const auto link = std::make_shared<MemoryLink>(hub, actor, network, 64);
  link->Connect();
  while (hub.live() == 0) std::this_thread::yield();
  hub.NotifyShutdown();
  const auto outcome = actor.Pump(nullptr);
  EXPECT_TRUE(outcome.shutdown && outcome.welcomed);
  EXPECT_TRUE(hub.WaitUntilClosed(10s));
}

// --- a hub and a peer made of bytes

struct SentMessage {
  MessageHeader header{};
  std::string rest;
};

// Records what the hub says; the test speaks for the actor.
class Puppet : public RemoteStream {
 public:
  void Send(Message head, Message body) override {
    if (body != nullptr) head->bytes += body->bytes;
    SentMessage message;
    std::memcpy(&message.header, head->bytes.data(), sizeof(MessageHeader));
    message.rest = head->bytes.substr(sizeof(MessageHeader));
    sent.push_back(message);
    ++unacknowledged;
  }
  void End(const RemoteEnd& given, bool) override {
    if (!end) end = given;
  }
  std::vector<SentMessage> sent;
  std::optional<RemoteEnd> end;
  int unacknowledged = 0;
};

class SessionTest : public QuietTest {
 protected:
  static constexpr uint32_t kSlots = 4;
  SessionTest() : spec_(LocalFleet(1)->spec()) { Make({}); }
  void TearDown() override {
    CloseAll();
    QuietTest::TearDown();
  }
  void Make(const std::vector<std::string>& tokens) {
    hub_ = std::make_unique<RemoteHub>(
        RemoteFleetOptions{.spec = spec_, .slots = kSlots, .offences_max = 3}, tokens, false);
  }

  struct Peer {
    std::shared_ptr<Puppet> stream = std::make_shared<Puppet>();
    std::shared_ptr<RemoteHub::Session> session;
    uint64_t incarnation = 0;
  };
  Peer& Connect(const std::string& authorization = {}) {
    peers_.emplace_back();
    Peer& peer = peers_.back();
    peer.session = hub_->Open(peer.stream, "test", authorization);
    return peer;
  }
  bool Say(Peer& peer, const std::string& message) {
    next_ = hub_->Receive(*peer.session, Cut(message, 50));
    Acknowledge(peer);
    return next_ != RemoteHub::Next::kNothing;
  }
  void Acknowledge(Peer& peer) {
    for (; peer.stream->unacknowledged > 0; --peer.stream->unacknowledged)
      hub_->Sent(*peer.session);
  }
  Peer& Join(uint32_t slots, const std::string& name = "puppet") {
    Peer& peer = Connect();
    EXPECT_TRUE(Say(peer, WriteHello({.actor = name, .slots = slots, .spec = spec_})));
    EXPECT_FALSE(peer.stream->sent.empty());
    if (!peer.stream->sent.empty()) {
      EXPECT_EQ(peer.stream->sent[0].header.kind, RemoteKind::kWelcome);
      peer.incarnation = peer.stream->sent[0].header.incarnation;
    }
    return peer;
  }
  void Close(Peer& peer) {
    if (peer.session) hub_->Close(*peer.session);
    peer.session.reset();
  }
  void CloseAll() {
    for (Peer& peer : peers_) Close(peer);
    peers_.clear();
  }
  // The newest command for a slot of the peer.
  CommandRow Command(Peer& peer, uint32_t slot) {
    Acknowledge(peer);
    CommandRow found{};
    for (const SentMessage& m : peer.stream->sent) {
      if (m.header.kind != RemoteKind::kCommands) continue;
      for (uint32_t i = 0; i < m.header.rows; ++i) {
        CommandRow row;
        std::memcpy(&row, m.rest.data() + i * sizeof row, sizeof row);
        if (row.slot == slot) found = row;
      }
    }
    return found;
  }
  static EventRow Answer(const CommandRow& command) {
    return {.sequence = command.sequence,
            .episode = command.episode,
            .reward = 1,
            .slot = command.slot,
            .step = command.step,
            .frames = 1,
            .flags = 0};
  }
  std::string Events(const Peer& peer, const std::vector<EventRow>& rows,
                     std::vector<float> observation = {1, 2, 3, 4}) const {
    const MessageHeader header{RemoteKind::kEvents, static_cast<uint32_t>(rows.size()),
                               peer.incarnation};
    std::string message(reinterpret_cast<const char*>(&header), sizeof header);
    message.append(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(EventRow));
    for (size_t i = 0; i < rows.size(); ++i)
      message.append(reinterpret_cast<const char*>(observation.data()), observation.size() * 4);
    return message;
  }
  uint64_t Dropped(const std::string& reason) { return hub_->drops().at(reason); }
  size_t EventsNow(SlotEvent& event) { return hub_->Wait({&event, 1}, 0ms); }

  const EnvironmentSpec spec_;
  std::unique_ptr<RemoteHub> hub_;
  RemoteHub::Next next_ = RemoteHub::Next::kNothing;  // after the last message
  std::deque<Peer> peers_;
};

// A read that is posted while nothing is awaited costs a message of flow control by itself.
TEST_F(SessionTest, ReadsWaitForTheNextSendOnlyWhileNothingIsAwaited) {
  using Next = RemoteHub::Next;
  hub_->Begin(0, 1, {});
  Peer& peer = Join(2);
  EXPECT_EQ(next_, Next::kRead) << "the reset that waited for it";
  hub_->Begin(1, 2, {});
  const EventRow first = Answer(Command(peer, 0)), second = Answer(Command(peer, 1));
  Say(peer, Events(peer, {first}));
  EXPECT_EQ(next_, Next::kRead) << "the other slot owes a row";
  Say(peer, Events(peer, {first}));
  EXPECT_EQ(next_, Next::kRead) << "a duplicate pays nothing";
  Say(peer, Events(peer, {second}));
  EXPECT_EQ(next_, Next::kReadAfterSend);
  Say(peer, Events(peer, {second}));
  EXPECT_EQ(next_, Next::kReadAfterSend);
  SlotEvent events[4];
  ASSERT_EQ(hub_->Wait(events, 0ms), 2U);
  hub_->Act(0, {});
  hub_->Act(1, {});
  EventRow lost = Answer(Command(peer, 0)), broken = Answer(Command(peer, 1));
  lost.reward = 0, lost.frames = 0, lost.flags = kRemoteLost;
  Say(peer, Events(peer, {lost}));
  EXPECT_EQ(next_, Next::kRead);
  broken.reward = std::numeric_limits<double>::infinity();
  Say(peer, Events(peer, {broken}));
  EXPECT_EQ(next_, Next::kReadAfterSend) << "what is lost is no longer awaited";
}

TEST_F(SessionTest, BeginWaitsForAnActor) {
  hub_->Begin(0, 7, {.seed = 5, .noops = 3, .frames_max = 11});
  SlotEvent event;
  EXPECT_EQ(EventsNow(event), 0U);
  EXPECT_EQ(hub_->live(), 0U);
  Peer& peer = Join(2);
  EXPECT_EQ(hub_->live(), 2U);
  const CommandRow command = Command(peer, 0);
  EXPECT_EQ(command.kind, RemoteCommand::kReset);
  EXPECT_EQ(command.episode, 7U);
  EXPECT_EQ(command.seed, 5U);
  EXPECT_EQ(command.argument, 3);
  EXPECT_EQ(command.frames_max, 11);
  EXPECT_TRUE(Say(peer, Events(peer, {Answer(command)})));
  ASSERT_EQ(EventsNow(event), 1U);
  EXPECT_EQ(event.kind, Kind::kObservation);
  EXPECT_EQ(event.episode, 7U);
  EXPECT_EQ(ReadFloats(hub_->observation(0)), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(SessionTest, RowsThatAreReadyTogetherTravelTogether) {
  Peer& peer = Join(4);
  for (uint32_t s = 0; s < 4; ++s) hub_->Begin(s, s, {});
  Acknowledge(peer);
  std::vector<EventRow> rows;
  for (uint32_t s = 0; s < 4; ++s) rows.push_back(Answer(Command(peer, s)));
  Say(peer, Events(peer, rows));
  SlotEvent events[8];
  ASSERT_EQ(hub_->Wait(events, 0ms), 4U);
  const size_t before = peer.stream->sent.size();
  std::vector<SlotAction> actions;
  for (uint32_t s = 0; s < 4; ++s) actions.push_back({s, {static_cast<int32_t>(s), {}}});
  hub_->ActMany(actions);
  ASSERT_EQ(peer.stream->sent.size(), before + 1);
  EXPECT_EQ(peer.stream->sent.back().header.rows, 4U);
  EXPECT_EQ(Command(peer, 2).argument, 2);
  EXPECT_EQ(Command(peer, 2).step, 1U);
}

// Actors of one row and of many in one batch; each row is what its own actor sent.
TEST_F(SessionTest, MessagesOfOneRowAndOfManyMix) {
  Peer *one = &Join(1), *many = &Join(3);
  for (uint32_t s = 0; s < 4; ++s) hub_->Begin(s, s, {});
  for (int step = 0; step < 3; ++step) {
    const auto sent = [step](float who) {
      return std::vector<float>{who, static_cast<float>(step), 0, 0};
    };
    std::vector<EventRow> rows;
    for (uint32_t s = 0; s < 3; ++s) rows.push_back(Answer(Command(*many, s)));
    const std::string alone = Events(*one, {Answer(Command(*one, 0))}, sent(1));
    // the last to come decides nothing for the others
    const std::string together = Events(*many, rows, sent(3));
    const bool first = step % 2 == 0;
    EXPECT_TRUE(Say(first ? *one : *many, first ? alone : together));
    EXPECT_TRUE(Say(first ? *many : *one, first ? together : alone));
    SlotEvent events[8];
    ASSERT_EQ(hub_->Wait(events, 0ms), 4U);
    for (uint32_t s = 0; s < 4; ++s) {
      EXPECT_EQ(ReadFloats(hub_->observation(s)), sent(s == 0 ? 1 : 3)) << s;
      hub_->Act(s, {0, {}});
    }
  }
}

TEST_F(SessionTest, EachCommandIsAnsweredOnce) {
  Peer& peer = Join(1);
  hub_->Begin(0, 1, {});
  const EventRow answer = Answer(Command(peer, 0));
  EXPECT_TRUE(Say(peer, Events(peer, {answer})));
  EXPECT_TRUE(Say(peer, Events(peer, {answer})));
  SlotEvent event;
  EXPECT_EQ(EventsNow(event), 1U);
  EXPECT_EQ(EventsNow(event), 0U);
  hub_->Act(0, {});
  EXPECT_TRUE(Say(peer, Events(peer, {answer})));  // the reset's answer for the action's
  EXPECT_EQ(EventsNow(event), 0U);
  EXPECT_EQ(Dropped("duplicate"), 2U);
  EXPECT_EQ(hub_->counters().stale_events, 2U);
}

TEST_F(SessionTest, RowsThatMeanNothingAreRefusedAlone) {
  struct Case {
    const char* reason;
    std::function<void(EventRow&)> spoil;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Case cases[] = {
      {"foreign", [](EventRow& r) { r.slot = 1; }},
      {"foreign", [](EventRow& r) { r.slot = 0xFFFFFFFF; }},
      {"stale", [](EventRow& r) { r.episode += 1; }},
      {"stale", [](EventRow& r) { r.step += 1; }},
      {"stale", [](EventRow& r) { r.sequence += 1; }},
      {"duplicate", [](EventRow& r) { r.sequence -= 1; }},
      {"malformed", [](EventRow& r) { r.flags = 16; }},
      {"malformed", [](EventRow& r) { r.flags = kRemoteLifeLost; }},  // at the beginning
      {"malformed", [](EventRow& r) { r.flags = kRemoteTerminated | kRemoteTruncated; }},
      {"malformed", [](EventRow& r) { r.flags = kRemoteLost | kRemoteLifeLost; }},
      {"malformed", [](EventRow& r) { r.frames = 0xFFFFFFFF; }},
      {"not_finite", [nan](EventRow& r) { r.reward = nan; }},
      {"not_finite", [](EventRow& r) { r.reward = -std::numeric_limits<double>::infinity(); }},
      {"out_of_range", [](EventRow& r) { r.reward = 1e30; }},
      {"out_of_range", [](EventRow& r) { r.reward = -1.1e6; }},
  };
  for (const Case& c : cases) {
    Make({});
    Peer& peer = Join(1);
    hub_->Begin(0, 1, {});
    const CommandRow command = Command(peer, 0);
    EventRow row = Answer(command);
    c.spoil(row);
    EXPECT_TRUE(Say(peer, Events(peer, {row}))) << c.reason;
    EXPECT_EQ(Dropped(c.reason), 1U) << c.reason;
    EXPECT_FALSE(peer.stream->end.has_value());
    CloseAll();
    SlotEvent event;
    ASSERT_EQ(EventsNow(event), 1U);
    EXPECT_EQ(event.kind, Kind::kLost);
    EXPECT_EQ(EventsNow(event), 0U);
  }
}

TEST_F(SessionTest, ObservationsThatNoNetworkBearsLoseTheirEpisodeOnly) {
  Peer& peer = Join(2);
  const std::pair<float, const char*> cases[] = {
      {std::numeric_limits<float>::infinity(), "not_finite"}, {-3e38F, "out_of_range"}};
  hub_->Begin(0, 1, {});
  for (const auto& [value, reason] : cases) {
    hub_->Begin(1, 2, {});
    std::string message =
        Events(peer, {Answer(Command(peer, 0)), Answer(Command(peer, 1))}, {1, 2, 3, 4});
    std::memcpy(message.data() + message.size() - 4, &value, 4);  // of the second
    EXPECT_TRUE(Say(peer, message));
    SlotEvent events[2];
    ASSERT_EQ(hub_->Wait(events, 0ms), 2U);
    EXPECT_EQ(events[0].kind, Kind::kObservation);
    EXPECT_EQ(events[1].kind, Kind::kLost);
    EXPECT_EQ(Dropped(reason), 1U);
    hub_->Act(0, {0, {}});
  }
  hub_->Begin(1, 2, {});
  EXPECT_EQ(Command(peer, 1).kind, RemoteCommand::kReset);
}

TEST_F(SessionTest, RepeatedOffencesEndTheStreamAndKeepTheActorOut) {
  Peer& peer = Join(1, "bad");
  hub_->Begin(0, 1, {});
  EventRow row = Answer(Command(peer, 0));
  row.slot = 9;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Say(peer, Events(peer, {row})));
  EXPECT_FALSE(Say(peer, Events(peer, {row})));
  ASSERT_TRUE(peer.stream->end.has_value());
  EXPECT_EQ(peer.stream->end->code, RemoteCode::kInvalidArgument);
  Close(peer);
  SlotEvent event;
  ASSERT_EQ(EventsNow(event), 1U);
  EXPECT_EQ(event.kind, Kind::kLost);
  Peer& again = Connect();
  EXPECT_FALSE(Say(again, WriteHello({.actor = "bad", .slots = 1, .spec = spec_})));
  EXPECT_EQ(again.stream->end->code, RemoteCode::kPermissionDenied);
  EXPECT_EQ(Dropped("quarantined"), 1U);
  Join(1, "good");
}

// Limit of connections of one address; others do not notice.
TEST_F(SessionTest, StreamsThatComeTooFastAreRefused) {
  const auto refused = [&](const std::string& address) {
    const auto stream = std::make_shared<Puppet>();
    hub_->Close(*hub_->Open(stream, address, ""));
    return stream->end.has_value() && stream->end->code == RemoteCode::kResourceExhausted;
  };
  const int burst = 2 * kSlots + 64;
  for (int i = 0; i < burst; ++i)
    ASSERT_FALSE(refused("ipv4:10.0.0.1:" + std::to_string(40'000 + i))) << i;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(refused("ipv4:10.0.0.1:50000"));
  EXPECT_FALSE(refused("ipv4:10.0.0.2:50000"));
  EXPECT_EQ(Dropped("crowded"), 5U);
  hub_->TEST_Tick(Now());  // time passes: a hundred more
  EXPECT_FALSE(refused("ipv4:10.0.0.1:50001"));
}

TEST_F(SessionTest, MessagesOfAnotherLengthEndTheStream) {
  struct Case {
    std::string reason;
    RemoteCode code;
    std::function<void(std::string&)> spoil;
  };
  const size_t row = sizeof(EventRow) + 16;
  const Case cases[] = {
      {"malformed", RemoteCode::kInvalidArgument, [](std::string& m) { m.pop_back(); }},
      {"oversized", RemoteCode::kResourceExhausted, [](std::string& m) { m.push_back('x'); }},
      {"malformed", RemoteCode::kInvalidArgument, [](std::string& m) { m.resize(3); }},
      {"malformed", RemoteCode::kInvalidArgument, [](std::string& m) { m.clear(); }},
      {"malformed", RemoteCode::kInvalidArgument, [](std::string& m) { m[0] = 9; }},
      {"malformed", RemoteCode::kInvalidArgument, [](std::string& m) { m[7] = '\x7F'; }},
      {"oversized", RemoteCode::kResourceExhausted,
       [](std::string& m) { m.append(100 * row, 'x'); }},
      {"stale", RemoteCode::kAborted, [](std::string& m) { ++m[8]; }},
  };
  for (const Case& c : cases) {
    Make({});
    Peer& peer = Join(1);
    hub_->Begin(0, 1, {});
    std::string message = Events(peer, {Answer(Command(peer, 0))});
    c.spoil(message);
    EXPECT_FALSE(Say(peer, message));
    ASSERT_TRUE(peer.stream->end.has_value());
    EXPECT_EQ(peer.stream->end->code, c.code);
    EXPECT_EQ(Dropped(c.reason), 1U) << c.reason;
    CloseAll();
  }
}

TEST_F(SessionTest, HelloIsCheckedWhole) {
  struct Case {
    RemoteCode code;
    std::string message;
  };
  EnvironmentSpec other = spec_;
  other.observation.shape = {5};
  HelloMessage hello{.actor = "a", .slots = 1, .spec = spec_};
  HelloMessage newer = hello, future = hello;
  newer.minor = kRemoteMinor + 1;  // one minor version apart works
  future.minor = kRemoteMinor + 2;
  const Case cases[] = {
      {RemoteCode::kOk, WriteHello(hello)},
      {RemoteCode::kOk, WriteHello(newer)},
      {RemoteCode::kFailedPrecondition, WriteHello(future)},
      {RemoteCode::kFailedPrecondition, WriteHello({.actor = "a", .slots = 1, .spec = other})},
      {RemoteCode::kFailedPrecondition, WriteHello({.actor = "a", .slots = 0, .spec = spec_})},
      {RemoteCode::kFailedPrecondition, WriteHello({.actor = "a", .slots = 65537, .spec = spec_})},
      {RemoteCode::kInvalidArgument, WriteShutdown("?")},
  };
  for (const Case& c : cases) {
    Peer& peer = Connect();
    EXPECT_EQ(Say(peer, c.message), c.code == RemoteCode::kOk);
    EXPECT_EQ(peer.stream->end.value_or(RemoteEnd{}).code, c.code);
    CloseAll();
  }
  // the difference is named
  Peer& peer = Connect();
  Say(peer, cases[3].message);
  EXPECT_NE(peer.stream->end->message.find("observation shape [5] instead of [4]"),
            std::string::npos)
      << peer.stream->end->message;
}

TEST_F(SessionTest, AHelloOfAnotherLengthEndsTheStream) {
  const std::string good = WriteHello({.actor = "a", .slots = 1, .spec = spec_});
  const auto expect = [&](const std::string& message, const char* reason, const std::string& end) {
    Make({});
    Peer& peer = Connect();
    EXPECT_FALSE(Say(peer, message));
    ASSERT_TRUE(peer.stream->end.has_value());
    EXPECT_EQ(peer.stream->end->code, RemoteCode::kInvalidArgument);
    EXPECT_EQ(peer.stream->end->message, "message of a peer: a text of " + end);
    EXPECT_EQ(Dropped(reason), 1U);
    CloseAll();
  };
  const size_t text = good.size() - sizeof(MessageHeader);
  expect(
      good + "x", "malformed",
      std::to_string(text + 1) + " bytes, " + std::to_string(text) + " announced, at most 1048576");
  std::string large = good;
  large.replace(4, 4, "\xff\xff\xff\x7f");
  expect(large, "oversized",
         std::to_string(text) + " bytes, 2147483647 announced, at most 1048576");
}

TEST_F(SessionTest, WhatComesAfterTheEndIsNotRead) {
  Peer& ended = Connect();
  EXPECT_FALSE(Say(ended, "x"));
  EXPECT_FALSE(Say(ended, WriteHello({.actor = "a", .slots = 1, .spec = spec_})));
  EXPECT_TRUE(ended.stream->sent.empty());
  const auto session = Connect().session;
  hub_->Close(*session);
  hub_->Close(*session);
  EXPECT_EQ(hub_->Receive(*session, Cut(WriteHello({.actor = "a", .slots = 1, .spec = spec_}), 9)),
            RemoteHub::Next::kNothing);
}

TEST_F(SessionTest, ActorsThatComeToAFinishedTrainingAreTold) {
  hub_->NotifyShutdown();
  Peer& peer = Connect();
  EXPECT_TRUE(Say(peer, WriteHello({.actor = "a", .slots = 1, .spec = spec_})));
  ASSERT_EQ(peer.stream->sent.size(), 1U);
  EXPECT_EQ(peer.stream->sent[0].header.kind, RemoteKind::kShutdown);
  EXPECT_EQ(peer.stream->end.value_or(RemoteEnd{RemoteCode::kAborted, ""}).code, RemoteCode::kOk);
}

// Sessions of all addresses together, and addresses that are told apart.
TEST_F(SessionTest, ManyAddressesAreOneCrowd) {
  const auto open = [&](int i) {
    const auto stream = std::make_shared<Puppet>();
    const std::string address =
        "ipv4:10." + std::to_string(i / 256) + "." + std::to_string(i % 256) + ".1:1";
    return std::pair(stream, hub_->Open(stream, address, ""));
  };
  std::vector<std::shared_ptr<RemoteHub::Session>> held;
  const int most = 2 * kSlots + 64;
  for (int i = 0; i < most; ++i) {
    const auto [stream, session] = open(i);
    held.push_back(session);
    EXPECT_FALSE(stream->end.has_value()) << i;
  }
  const auto [stream, session] = open(most);
  held.push_back(session);
  ASSERT_TRUE(stream->end.has_value());
  EXPECT_EQ(stream->end->message, "too many connections: try later");
  for (const auto& each : held) hub_->Close(*each);
  for (int i = most + 1; i < 10'000; ++i) hub_->Close(*open(i).second);
  // those beyond ten thousand share what one address may open
  int refused = 0;
  for (int i = 10'000; i < 10'000 + most + 5; ++i) {
    const auto [late, last] = open(i);
    hub_->Close(*last);
    refused +=
        late->end.has_value() && late->end->message == "too many connections at once: try later";
  }
  EXPECT_EQ(refused, 5);
  hub_->Close(*open(1).second);  // one of those that are known
  EXPECT_EQ(Dropped("crowded"), 5U);
}

TEST_F(SessionTest, AnActorIsLetInAgainAfterItsQuarantine) {
  hub_ = std::make_unique<RemoteHub>(
      RemoteFleetOptions{.spec = spec_, .slots = kSlots, .offences_max = 0, .quarantine = 0},
      std::vector<std::string>(), false);
  Peer& peer = Join(1, "bad");
  hub_->Begin(0, 1, {});
  EventRow row = Answer(Command(peer, 0));
  row.slot = 9;
  EXPECT_FALSE(Say(peer, Events(peer, {row})));
  Close(peer);
  Join(1, "bad");
  EXPECT_EQ(Dropped("quarantined"), 0U);
}

TEST_F(SessionTest, RowsAfterTheLastOffenceAreNotCountedTwice) {
  Peer& peer = Join(kSlots, "bad");
  hub_->Begin(0, 1, {});
  EventRow row = Answer(Command(peer, 0));
  row.slot = 9;
  EXPECT_TRUE(Say(peer, Events(peer, {row})));
  EXPECT_FALSE(Say(peer, Events(peer, {row, row, row, row})));
  EXPECT_EQ(peer.stream->end->message, "too many rows were refused, the last one as foreign");
  EXPECT_EQ(Dropped("foreign"), 5U);
}

TEST_F(SessionTest, ALearnerProcessThatEndsAdmitsNoActor) {
  const RemoteEnd end{RemoteCode::kUnavailable, "shutting down"};
  Peer& before = Connect();
  hub_->EndAll(end);
  for (const Peer& peer : {before, Connect()}) {
    ASSERT_TRUE(peer.stream->end.has_value());
    EXPECT_EQ(peer.stream->end->code, end.code);
    EXPECT_EQ(peer.stream->end->message, end.message);
  }
  hub_->NotifyShutdown();  // of a training that is finished: those that come now are told
  Peer& after = Connect();
  EXPECT_FALSE(after.stream->end.has_value());
  EXPECT_TRUE(Say(after, WriteHello({.actor = "a", .slots = 1, .spec = spec_})));
  EXPECT_EQ(after.stream->sent.at(0).header.kind, RemoteKind::kShutdown);
}

TEST_F(SessionTest, TokensAreNeededAndTwoAreValidAtOnce) {
  const std::string one(64, 'a'), two(64, 'b');
  Make({one, two});
  for (const std::string& wrong :
       {std::string(), std::string("Bearer "), "Bearer " + std::string(64, 'c'), one,
        "Bearer " + one + "a", "Bearer " + one.substr(1), std::string(10'000, 'a')}) {
    Peer& peer = Connect(wrong);
    ASSERT_TRUE(peer.stream->end.has_value()) << wrong;
    EXPECT_EQ(peer.stream->end->code, RemoteCode::kUnauthenticated);
    EXPECT_EQ(peer.stream->end->message.find("aaa"), std::string::npos);
    EXPECT_FALSE(Say(peer, WriteHello({.actor = "a", .slots = 1, .spec = spec_})));
    EXPECT_TRUE(peer.stream->sent.empty());
  }
  EXPECT_EQ(Dropped("unauthenticated"), 7U);
  for (const std::string& right : {one, two})
    EXPECT_TRUE(
        Say(Connect("Bearer " + right), WriteHello({.actor = "a", .slots = 1, .spec = spec_})));
  EXPECT_EQ(hub_->live(), 2U);
}

TEST_F(SessionTest, SlotsAreLeasedOnceAndAgainAfterTheirActor) {
  Peer& first = Join(3);
  Peer& second = Connect();
  EXPECT_TRUE(Say(second, WriteHello({.actor = "b", .slots = 3, .spec = spec_})));
  EXPECT_EQ(ParseWelcome(second.stream->sent[0].rest)->slots, 1U);
  Peer& third = Connect();
  EXPECT_FALSE(Say(third, WriteHello({.actor = "c", .slots = 1, .spec = spec_})));
  EXPECT_EQ(third.stream->end->code, RemoteCode::kResourceExhausted);
  hub_->Begin(1, 5, {});
  Say(first, Events(first, {Answer(Command(first, 1))}));
  SlotEvent event;
  ASSERT_EQ(EventsNow(event), 1U);
  const uint64_t incarnation = first.incarnation;
  Close(first);
  // the observation is still there to be read; the action finds the actor gone
  EXPECT_EQ(ReadFloats(hub_->observation(1)), (std::vector<float>{1, 2, 3, 4}));
  hub_->Act(1, {});
  ASSERT_EQ(EventsNow(event), 1U);
  EXPECT_EQ(event.kind, Kind::kLost);
  Peer& fourth = Join(3);
  EXPECT_GT(fourth.incarnation, incarnation);
  EXPECT_EQ(hub_->live(), 4U);
}

TEST_F(SessionTest, SilentActorsExpireOnTheEnginesOwnClockOnly) {
  Peer& silent = Join(1);
  Peer& lively = Join(1);
  SteadyTime now = Now();
  for (int second = 1; second <= 30; ++second) {
    now += 1s;
    if (second <= 5) {
      Say(silent, Events(silent, {}));  // judged by the real clock: no later than now
    }
    hub_->TEST_Tick(now);
    Acknowledge(silent), Acknowledge(lively);
    if (second == 9) {
      EXPECT_FALSE(silent.stream->end.has_value());
    }
  }
  ASSERT_TRUE(silent.stream->end.has_value());
  EXPECT_EQ(silent.stream->end->code, RemoteCode::kDeadlineExceeded);
  EXPECT_EQ(Dropped("expired"), 2U);
  // signs of life were sent meanwhile
  int signs = 0;
  for (const SentMessage& m : lively.stream->sent)
    signs += m.header.kind == RemoteKind::kCommands && m.header.rows == 0 ? 1 : 0;
  EXPECT_GE(signs, 8);
}

TEST_F(SessionTest, APausedEngineEvictsNoActor) {
  Peer& peer = Join(1);
  hub_->TEST_Tick(Now());
  hub_->TEST_Tick(Now() + 300s);  // the learner process was stopped for five minutes
  hub_->TEST_Tick(Now() + 301s);
  EXPECT_FALSE(peer.stream->end.has_value());
  for (int second = 302; second < 315; ++second)
    hub_->TEST_Tick(Now() + std::chrono::seconds(second));
  EXPECT_TRUE(peer.stream->end.has_value());
}

TEST_F(SessionTest, HungStepsEndTheStream) {
  hub_ = std::make_unique<RemoteHub>(
      RemoteFleetOptions{.spec = spec_, .slots = 1, .lease = 1000, .step_timeout = 5},
      std::vector<std::string>(), false);
  Peer& peer = Join(1);
  hub_->Begin(0, 1, {});
  Acknowledge(peer);
  const SteadyTime start = Now();
  for (int second = 1; second <= 4; ++second) hub_->TEST_Tick(start + std::chrono::seconds(second));
  EXPECT_FALSE(peer.stream->end.has_value());
  for (int second = 5; second <= 7; ++second) hub_->TEST_Tick(start + std::chrono::seconds(second));
  EXPECT_TRUE(peer.stream->end.has_value());
  EXPECT_EQ(Dropped("hung"), 1U);
}

TEST_F(SessionTest, TheFirstActorMayDecideTheSpec) {
  hub_ = std::make_unique<RemoteHub>(RemoteFleetOptions{.environment = spec_.id, .slots = 2},
                                     std::vector<std::string>(), false);
  EXPECT_EQ(hub_->WaitForSpec(0.001).code(), Code::kUnavailable);
  EnvironmentSpec other = spec_;
  other.id = "other/game";
  EXPECT_FALSE(Say(Connect(), WriteHello({.actor = "x", .slots = 1, .spec = other})));
  other = spec_;
  other.observation.shape = {1 << 19};  // of four bytes each
  Peer& large = Connect();
  EXPECT_FALSE(Say(large, WriteHello({.actor = "x", .slots = 1, .spec = other})));
  EXPECT_EQ(large.stream->end->message,
            "the actor plays something else: observations of more than a megabyte");
  Join(1);
  ASSERT_TRUE(hub_->WaitForSpec(1).ok());
  EXPECT_EQ(hub_->spec().observation.shape, spec_.observation.shape);
  CloseAll();
  // any environment
  hub_ = std::make_unique<RemoteHub>(RemoteFleetOptions{.slots = 2}, std::vector<std::string>(),
                                     false);
  Join(1);
  EXPECT_TRUE(hub_->WaitForSpec(1).ok());
}

TEST(WireTest, SpecsSurviveTheJourney) {
  for (const bool discrete : {true, false}) {
    EnvironmentSpec spec = LocalFleet(1, {.discrete = discrete})->spec();
    if (!discrete) {
      spec.action.low = {-1, -std::numeric_limits<float>::infinity()};
      spec.action.high = {0.1F, std::numeric_limits<float>::infinity()};
    }
    const std::string message = WriteHello({.actor = "a\n", .slots = 3, .spec = spec});
    const auto hello = ParseHello(message.substr(sizeof(MessageHeader)));
    ASSERT_TRUE(hello.ok()) << hello.status().message();
    EXPECT_EQ(hello->spec.id, spec.id);
    EXPECT_EQ(hello->spec.action.low, spec.action.low);
    EXPECT_EQ(hello->spec.action.high, spec.action.high);
    EXPECT_EQ(hello->spec.action_names, spec.action_names);
    EXPECT_EQ(hello->slots, 3U);
    EXPECT_EQ(hello->actor, "a\\x0a");
  }
}

TEST(WireTest, PiecesReadAsOne) {
  std::string text(1000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7);
  for (const size_t size : {size_t{1}, size_t{3}, size_t{64}, size_t{999}, size_t{5000}}) {
    const auto pieces = Cut(text, size);
    PieceReader in(pieces);
    std::string out(1000, '\0');
    EXPECT_TRUE(in.Read(out.data(), 10));
    EXPECT_TRUE(in.Read(nullptr, 20));
    EXPECT_TRUE(in.Read(out.data() + 30, 970));
    EXPECT_FALSE(in.Read(out.data(), 1));
    EXPECT_EQ(out.substr(0, 10), text.substr(0, 10));
    EXPECT_EQ(out.substr(30), text.substr(30));
  }
}

TEST_F(QuietTest, AUnionIsItsMembers) {
  const auto one = LocalFleet(2);
  const auto expected = Player(*one).Play(25);
  std::vector<std::unique_ptr<Fleet>> members;
  members.push_back(LocalFleet(2));
  members.push_back(LocalFleet(3));
  const auto both = MakeFleetUnion(std::move(members)).ValueOrThrow();
  EXPECT_EQ(both->slots(), 5U);
  EXPECT_EQ(both->live(), 5U);
  Player player(*both);
  EXPECT_EQ(player.Play(25), expected);
  EXPECT_EQ(player.surplus_events(), 0);
  EXPECT_EQ(both->counters().frames, one->counters().frames);
  members.push_back(LocalFleet(1));
  members.push_back(LocalFleet(1, {.bytes = true}));
  const auto mixed = MakeFleetUnion(std::move(members));
  EXPECT_EQ(mixed.status().code(), Code::kConfig);
}

}  // namespace
}  // namespace samara
