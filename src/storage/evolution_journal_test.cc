#include "storage/evolution_journal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/sha256.h"
#include "evo/algorithms/ga.h"
#include "evo/algorithms/registry.h"
#include "storage/checkpoint.h"
#include "storage/run_folder.h"
#include "storage/storage_test_util.h"

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

TEST(GenerationRecordTest, AnotherVersionAndWhatFollowsAreRefused) {
  GenerationRecord record{
      .algorithm = "deep-ga", .state = "", .fitness = {}, .seconds = 0, .metrics = ""};
  const std::string bytes = record.Encode();
  const auto message = [](const std::string& read) {
    const Status status = GenerationRecord::Decode(read).status();
    EXPECT_EQ(status.code(), Code::kBadData);
    return status.message();
  };
  for (const char version : {0, 4}) {
    std::string other = bytes;
    other[0] = version;
    EXPECT_EQ(message(other),
              "generation record version " + std::to_string(int{version}) + ", expected 3");
  }
  EXPECT_EQ(message(bytes + "x"), "a generation record is damaged");
  // positions of three bytes, which are no number
  std::string part = bytes;
  part[part.size() - sizeof(uint64_t)] = 3;
  EXPECT_EQ(message(part + "xyz"), "a generation record is damaged");
}

TEST(GenerationRecordTest, NamesAnAlgorithmThatThisProgramLacks) {
  const GenerationRecord record{
      .algorithm = "another", .state = "", .fitness = {}, .seconds = 0, .metrics = ""};
  const Status status = record.Describe().status();
  EXPECT_EQ(status.code(), Code::kBadData);
  EXPECT_NE(status.message().find("run.algorithm=another"), std::string::npos);
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
}

// A run whose journal and checkpoints each test writes.
class FindGenerationTest : public testing::Test {
 protected:
  FindGenerationTest()
      : run_(RunFolder::Create(path_, "x", "[run]\n", {{"seed", 1}}, 0).ValueOrThrow()) {}

  static std::string Generation(uint64_t number, const std::string& algorithm = "deep-ga") {
    GaState state;
    state.generation = number;
    return GenerationRecord{
        .algorithm = algorithm, .state = state.Encode(), .fitness = {}, .seconds = 0, .metrics = ""}
        .Encode();
  }
  void Append(std::initializer_list<uint64_t> generations) const {
    const auto journal =
        Journal::Open(run_->journal(), Journal::OnDamage::kRefuse, nullptr).ValueOrThrow();
    ASSERT_TRUE(journal->Append(kReferenceRecord, "reference").ok());
    for (const uint64_t number : generations)
      ASSERT_TRUE(journal->Append(kGenerationRecord, Generation(number)).ok());
    ASSERT_TRUE(journal->Append(77, "of a later build").ok());
  }
  Path Save(uint64_t step) const {
    const std::vector<CheckpointFile> files = {{"state.bin", "state"}};
    return CheckpointWriter(run_->checkpoints())
        .Save({.step = step, .incarnation = 1}, files)
        .ValueOrThrow()
        .path();
  }
  void ExpectRefused(int64_t generation, Code code, const std::string& message) const {
    for (const Status& status : {FindGeneration(path_, generation).status(),
                                 ReadGenerations(path_, generation).status()}) {
      EXPECT_EQ(status.code(), code);
      EXPECT_EQ(status.message(), message);
    }
  }
  void ExpectDamaged(const std::string& message) const {
    ExpectRefused(-1, Code::kBadData,
                  message + "; 'samara fsck " + path_.string() +
                      "' lists all damage, 'samara train --resume " + path_.string() +
                      "' continues with the valid part, if there is one");
  }
  std::string No(const std::string& what) const {
    return path_.string() + ": no " + what + "; process " + std::to_string(::getpid()) +
           " trains it: wait for the next";
  }

  TempFolder folder_;
  const Path path_ = folder_ / "run";
  std::unique_ptr<RunFolder> run_;
};

TEST_F(FindGenerationTest, OfARunThatNoProcessHoldsSaysHowToGoOn) {
  Append({1, 2});
  run_.reset();
  EXPECT_EQ(FindGeneration(path_, 3).status().message(),
            path_.string() +
                ": no generation 3, the last is 2; let it run on with 'samara train "
                "--resume " +
                path_.string() + "'");
  ASSERT_TRUE(RunFolder::Open(path_, RunFolder::Mode::kWrite)
                  .ValueOrThrow()
                  ->SaveResult({{"frames", 12}})
                  .ok());
  EXPECT_EQ(FindGeneration(path_, 3).status().message(),
            path_.string() +
                ": no generation 3, the last is 2; the run is finished, and a larger budget "
                "continues it");
}

TEST_F(FindGenerationTest, IsTheLastOrTheOneOfThatNumber) {
  // the second was played again after the journal had lost its end
  Append({1, 2, 4, 2, 3, 5});
  EXPECT_EQ(FindGeneration(path_, -1)->summary.generation, 5U);
  EXPECT_EQ(FindGeneration(path_, 3)->summary.generation, 3U);
  EXPECT_EQ(FindGeneration(path_, 3)->reference, "reference");
  EXPECT_EQ(FindGeneration(path_, 9).status().message(), No("generation 9, the last is 5"));
  EXPECT_EQ(FindGeneration(path_, 0).status().message(), No("generation 0, the last is 5"));
  EXPECT_EQ(ReadGenerations(path_, -1)->size(), 4U);  // 1, 2, 4, 5
  EXPECT_EQ(ReadGenerations(path_, 2)->size(), 2U);
  EXPECT_EQ(ReadGenerations(path_, 9).status().message(), No("generation 9, the last is 5"));
  EXPECT_EQ(ReadGenerations(path_, 0).status().code(), Code::kNoInput);
  const auto last = LastGeneration(ReadJournal(run_->journal()).ValueOrThrow()).ValueOrThrow();
  EXPECT_EQ(last->Describe()->generation, 5U);
}

TEST_F(FindGenerationTest, WithoutAGenerationThereIsNoneUnlessSomethingWasLost) {
  ExpectRefused(-1, Code::kNoInput, No("finished generation yet"));  // no journal
  Append({});
  ExpectRefused(-1, Code::kNoInput, No("finished generation yet"));
  ASSERT_TRUE(run_->SaveResult({{"frames", 1}}).ok());
  ExpectDamaged(run_->journal().string() + ": no generation, yet there is a result");
  ASSERT_TRUE(run_->RemoveResult().ok());
  const Path checkpoint = Save(3);
  ExpectDamaged(run_->journal().string() + ": lost its end, generations 1 to 3");
  Overwrite(checkpoint / "state.bin", "other");
  ExpectDamaged((checkpoint / "state.bin").string() + ": damaged: its SHA-256 is " +
                Sha256Hex("other") + ", expected " + Sha256Hex("state") +
                "; the journal holds no generation either");
}

TEST_F(FindGenerationTest, AJournalThatIsBehindItsCheckpointOrMissingIsDamaged) {
  Append({1, 2});
  Save(2);
  EXPECT_EQ(FindGeneration(path_, -1)->summary.generation, 2U);
  Save(5);
  ExpectDamaged(run_->journal().string() + ": lost its end, generations 3 to 5");
  const std::string good = *ReadFile(run_->journal());
  std::filesystem::remove(run_->journal().path());
  ExpectDamaged(run_->journal().string() + ": missing");
  Overwrite(run_->journal().path(), "x" + good);
  ExpectDamaged(run_->journal().string() + ": not a samara journal");
}

TEST_F(FindGenerationTest, AnotherBuildsJournalIsNamedSo) {
  Append({1});
  {
    const auto journal =
        Journal::Open(run_->journal(), Journal::OnDamage::kRefuse, nullptr).ValueOrThrow();
    ASSERT_TRUE(journal->Append(kGenerationRecord, Generation(2, "another")).ok());
  }
  Save(2);
  ExpectRefused(-1, Code::kBadData,
                "a generation of run.algorithm=another, which this program does not have: use the "
                "one that wrote it");
  Overwrite(run_->journal().path(), OfFormat2(*ReadFile(run_->journal())));
  ExpectRefused(
      -1, Code::kConfig,
      run_->journal().string() +
          ": journal of format 2, this samara reads format 1: use the samara that wrote it");
}

TEST_F(FindGenerationTest, ARecordThatIsNoGenerationsIsDamaged) {
  const auto journal =
      Journal::Open(run_->journal(), Journal::OnDamage::kRefuse, nullptr).ValueOrThrow();
  ASSERT_TRUE(journal->Append(kGenerationRecord, "").ok());
  ExpectDamaged("generation record version 0, expected 3");
}

}  // namespace
}  // namespace samara
