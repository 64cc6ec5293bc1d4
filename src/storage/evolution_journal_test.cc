#include "storage/evolution_journal.h"

#include <gtest/gtest.h>

#include "evo/algorithms/registry.h"

namespace samara {
namespace {

// A record of version 1: `samara train classic/cartpole-ga` of the first builds with a population
// of 4, 2 parents and seed 7, after generation 2.
constexpr char kFirstVersion[] =
    "01000000567f4245ee4c9d3ff10000000000000002000000020000000000000077030000000000004e010000"
    "0000000077030000000000000c0000000000000002000000000000001c000000000000000101010001000000"
    "c5b1e900f93a5c961908bc049e56f976cdcccc3d0000000000004b400000000000004b401c00000000000000"
    "010101000100000080458b76d2f29edd3e11f109ce3ae316cdcccc3d00000000000037400000000000003740"
    "011c000000000000000101010001000000c5b1e900f93a5c961908bc049e56f976cdcccc3d00000000008053"
    "400000000000805340071bac24a60311d242f2938245dbc5f43cc15983b890fc6ac28397689f93c1130f0300"
    "00000000007b22656c6974655f6d75746174696f6e73223a312c22656c6974655f746573745f6d65616e223a"
    "34392e302c22656c6974655f746573745f6d656469616e223a34392e302c22656c6974655f746573745f7265"
    "7475726e73223a5b34372e302c35312e305d2c22656c6974655f76616c69646174696f6e5f6d65616e223a37"
    "382e302c22657069736f646573223a31322c226669746e6573735f6d6178223a35342e302c226669746e6573"
    "735f6d65616e223a32392e352c226669746e6573735f6d656469616e223a32322e352c226669746e6573735f"
    "6d696e223a31392e302c226669746e6573735f737464223a31342e3232313436323635333332373839322c22"
    "6672616d6573223a3838372c226672616d65735f7065725f7365636f6e64223a33333430392e303936333937"
    "39383935352c226672616d65735f74657374223a3333342c2267656e65726174696f6e223a322c226c696e65"
    "61676573223a322c22706172656e74735f64697374696e6374223a322c22706f70756c6174696f6e5f686173"
    "68223a2230373162616332346136303331316432343266323933383234356462633566343363633135393833"
    "623839306663366163323833393736383966393363313133222c227265737061776e73223a302c227365636f"
    "6e6473223a302e3032383038303530382c227365636f6e64735f6265747765656e223a302e30303035393936"
    "3030303030303030303030352c227365636f6e64735f656e7669726f6e6d656e74223a352e30353435303030"
    "3030303030303031652d30352c227365636f6e64735f696e666572656e6365223a302e302c227365636f6e64"
    "735f6d6174657269616c697365223a312e36383535303030303030303030303037652d30352c227365636f6e"
    "64735f706f70756c6174696f6e223a302e3030373337303137372c227365636f6e64735f74657374223a302e"
    "3030333930393538372c227365636f6e64735f76616c69646174696f6e223a382e32383833652d30352c2273"
    "74657073223a3838372c2274696d65223a22323032362d31312d32335432333a33333a32335a227d04000000"
    "000000000000000000003340000000000000374000000000000036400000000000004b40";
// As `samara hash` of those builds printed it.
constexpr char kFirstHash[] = "071bac24a60311d242f2938245dbc5f43cc15983b890fc6ac28397689f93c113";

std::string FromHex(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  return bytes;
}

TEST(GenerationRecordTest, TheFirstVersionIsReadAsADeepGa) {
  const auto record = GenerationRecord::Decode(FromHex(kFirstVersion)).ValueOrThrow();
  EXPECT_EQ(record.algorithm, "deep-ga");
  EXPECT_EQ(record.fitness.size(), 4U);
  const EvolutionSummary summary = record.Describe().ValueOrThrow();
  EXPECT_EQ(summary.generation, 2U);
  EXPECT_EQ(summary.frames, 887U);
  EXPECT_EQ(summary.frames_test, 334U);
  EXPECT_EQ(summary.episodes, 12U);
  EXPECT_EQ(summary.best_mean, 78);
  EXPECT_EQ(std::get<Genome>(summary.best).mutations.size(), 1U);
  EXPECT_EQ(Hex(summary.population_hash), kFirstHash);
}

TEST(GenerationRecordTest, DecodesWhatWasEncoded) {
  const GenerationRecord record{.algorithm = "deep-ga",
                                .state = "bytes",
                                .fitness = {1, -2},
                                .seconds = 3,
                                .metrics = "{}",
                                .archive = "more",
                                .positions = {1.5F, 2, 3, 4},
                                .evaluations = 7,
                                .solved_at = 5};
  const auto back = GenerationRecord::Decode(record.Encode()).ValueOrThrow();
  EXPECT_EQ(back.algorithm, record.algorithm);
  EXPECT_EQ(back.state, record.state);
  EXPECT_EQ(back.fitness, record.fitness);
  EXPECT_EQ(back.seconds, record.seconds);
  EXPECT_EQ(back.metrics, record.metrics);
  EXPECT_EQ(back.archive, record.archive);
  EXPECT_EQ(back.positions, record.positions);
  EXPECT_EQ(back.evaluations, record.evaluations);
  EXPECT_EQ(back.solved_at, record.solved_at);
  const std::string bytes = record.Encode();
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(GenerationRecord::Decode(bytes.substr(0, size)).status().code(), Code::kBadData);
}

TEST(GenerationRecordTest, NamesAnAlgorithmThatThisProgramLacks) {
  const GenerationRecord record{
      .algorithm = "another", .state = "", .fitness = {}, .seconds = 0, .metrics = ""};
  const Status status = record.Describe().status();
  EXPECT_EQ(status.code(), Code::kBadData);
  EXPECT_NE(status.message().find("run.algorithm=another"), std::string::npos);
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace samara
