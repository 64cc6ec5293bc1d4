// Texts of Hello and Welcome with one member that is wrong, and messages whose lengths do not
// agree.
#include "fleet/remote/wire.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "env/dummy.h"
#include "fleet/actor_messages.h"
#include "fleet/remote/memory_link_test_util.h"

namespace samara {
namespace {

using WireJson = nlohmann::json;

WireJson GoodHello() {
  return {{"major", kRemoteMajor},
          {"minor", kRemoteMinor},
          {"actor", "a"},
          {"slots", 2},
          {"spec", ToJson(MakeDummyEnvironment({}).ValueOrThrow()->spec())}};
}

WireJson GoodWelcome() {
  return {{"minor", 0},     {"incarnation", 3}, {"slots", 2},
          {"heartbeat", 1}, {"lease", 10.5},    {"events_max", 7}};
}

// A member with a wrong value, and the message.
struct WrongMember {
  const char* key;
  WireJson value;  // discarded: the member is left out
  std::string message;
};

template <typename Parse>
void ExpectWrong(const WireJson& good, const std::vector<WrongMember>& cases, Parse parse) {
  ASSERT_TRUE(parse(good.dump()).ok()) << parse(good.dump()).status().message();
  for (const WrongMember& c : cases) {
    WireJson json = good;
    if (c.value.is_discarded())
      json.erase(c.key);
    else
      json[c.key] = c.value;
    const Status status = parse(json.dump()).status();
    EXPECT_EQ(status.code(), Code::kConfig) << c.key << " " << json.dump();
    EXPECT_EQ(status.message(), c.message);
  }
  for (const char* text : {"", "[]", "{", "3", "{\"slots\": \xff}"})
    EXPECT_EQ(parse(text).status().message(), "message of a peer: not a JSON object") << text;
}

const WireJson kLeftOut(WireJson::value_t::discarded);
constexpr double kDay = 86400;

TEST(WireMessageTest, WrongMembersOfHelloAreNamed) {
  const std::string peer = "message of a peer: ";
  const std::string version = peer + "major: expected an integer, 0..1073741824";
  const std::string slots = peer + "slots: expected an integer, 1..65536";
  const auto protocol = [](const std::string& text) {
    return "the actor speaks protocol " + text +
           ", the learner process 1.0: use the same version of samara on both sides";
  };
  ExpectWrong(GoodHello(),
              {{"major", kLeftOut, version},
               {"major", "1", version},
               {"major", 1.0, version},
               {"major", -1, version},
               {"major", UINT64_MAX, version},
               {"major", 2, protocol("2.0")},
               {"minor", nullptr, peer + "minor: expected an integer, 0..1073741824"},
               {"minor", 2, protocol("1.2")},
               {"slots", 0, slots},
               {"slots", 65537, slots},
               {"actor", kLeftOut, peer + "actor: expected a text"},
               {"actor", 5, peer + "actor: expected a text"},
               {"spec", kLeftOut, peer + "spec: expected an object"},
               {"spec", "dummy", peer + "spec: expected an object"},
               {"spec", WireJson::object(), "message of an actor: id: expected a text"}},
              ParseHello);
  WireJson longest = GoodHello();
  longest["actor"] = std::string(1000, 'a');
  EXPECT_EQ(ParseHello(longest.dump())->actor, std::string(100, 'a'));
}

TEST(WireMessageTest, WrongMembersOfWelcomeAreNamed) {
  const std::string peer = "message of a peer: ", seconds = ": expected seconds, above 0";
  const std::string incarnation = peer + "incarnation: expected an integer, 1..9223372036854775807";
  const std::string rows = peer + "events_max: expected an integer, 1..1073741824";
  ExpectWrong(
      GoodWelcome(),
      {{"minor", kLeftOut, peer + "minor: expected an integer, 0..1073741824"},
       {"incarnation", 0, incarnation},
       {"incarnation", UINT64_MAX, incarnation},
       {"slots", false, peer + "slots: expected an integer, 1..65536"},
       {"heartbeat", kLeftOut, peer + "heartbeat" + seconds},
       {"heartbeat", "1", peer + "heartbeat" + seconds},
       {"heartbeat", 0, peer + "heartbeat" + seconds},
       {"heartbeat", std::numeric_limits<double>::quiet_NaN(), peer + "heartbeat" + seconds},
       {"lease", kDay + 1, peer + "lease" + seconds},
       {"events_max", 0, rows},
       {"events_max", (1LL << 30) + 1, rows}},
      ParseWelcome);
  EXPECT_EQ(ParseWelcome(GoodWelcome().dump())->lease, 10.5);
}

TEST(WireMessageTest, ATextHasTheLengthThatItsHeaderSays) {
  const auto read = [](uint32_t announced, size_t bytes) {
    const std::string text(bytes, 'x');
    const auto pieces = Cut(text, 1000);
    PieceReader in(pieces);
    return ReadText({RemoteKind::kHello, announced, 0}, in);
  };
  EXPECT_EQ(read(5, 5).ValueOrThrow(), "xxxxx");
  EXPECT_EQ(read(0, 0).ValueOrThrow(), "");
  const auto expect = [&](uint32_t announced, size_t bytes, const std::string& message) {
    const Status status = read(announced, bytes).status();
    EXPECT_EQ(status.code(), Code::kConfig);
    EXPECT_EQ(status.message(), "message of a peer: a text of " + message);
  };
  expect(4, 5, "5 bytes, 4 announced, at most 1048576");
  expect(UINT32_MAX, 5, "5 bytes, 4294967295 announced, at most 1048576");
  expect(1048577, 1048577, "1048577 bytes, 1048577 announced, at most 1048576");
}

TEST(WireMessageTest, EmptyPiecesAreSkipped) {
  const std::string text = "abc";
  const std::span<const std::byte> whole = std::as_bytes(std::span(text)), none;
  const std::vector<std::span<const std::byte>> pieces = {none, whole.first(1), none,
                                                          whole.subspan(1), none};
  PieceReader in(pieces);
  char out[3] = {};
  EXPECT_TRUE(in.Read(out, 3));
  EXPECT_EQ(std::string(out, 3), text);
  EXPECT_TRUE(in.Read(out, 0));
  EXPECT_FALSE(in.Read(out, 1));
}

}  // namespace
}  // namespace samara
