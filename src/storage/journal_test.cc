#include "storage/journal.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "core/crc32c.h"
#include "gtest/gtest.h"
#include "storage/quarantine.h"
#include "storage/storage_test_util.h"

namespace samara {
namespace {

using OnDamage = Journal::OnDamage;

const std::vector<std::string> kPayloads = {"first", "", std::string(40, '\0'), "the last one"};

std::vector<std::string> Payloads(const JournalContents& contents) {
  std::vector<std::string> payloads;
  for (const JournalRecord& record : contents.records) payloads.push_back(record.payload);
  return payloads;
}

class JournalTest : public testing::Test {
 protected:
  std::unique_ptr<Journal> Open(JournalContents* contents = nullptr,
                                OnDamage on_damage = OnDamage::kRefuse) const {
    return Journal::Open(path_, on_damage, contents).ValueOrThrow();
  }
  // A journal of kPayloads with types 1, 2, ...; its bytes.
  std::string Write() const {
    const auto journal = Open();
    uint32_t type = 0;
    for (const std::string& payload : kPayloads) EXPECT_TRUE(journal->Append(++type, payload).ok());
    return *ReadFile(path_);
  }
  // Whether `contents` is the beginning of kPayloads: never a wrong record.
  static bool IsPrefix(const JournalContents& contents) {
    const auto found = Payloads(contents);
    if (found.size() > kPayloads.size()) return false;
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i] != kPayloads[i] || contents.records[i].type != i + 1) return false;
    }
    return true;
  }
  TempFolder folder_;
  Path path_ = folder_ / "journal.bin";
};

TEST_F(JournalTest, GivesBackWhatWasAppended) {
  Write();
  const auto contents = ReadJournal(path_);
  EXPECT_EQ(Payloads(*contents), kPayloads);
  EXPECT_EQ(contents->records[2].type, 3U);
  EXPECT_EQ(contents->torn_bytes, 0U);
  EXPECT_TRUE(contents->damage.ok());
}

TEST_F(JournalTest, GoesOnWhereItStopped) {
  Write();
  JournalContents contents;
  const auto journal = Open(&contents);
  EXPECT_EQ(Payloads(contents), kPayloads);
  EXPECT_EQ(contents.tip(), journal->tip());
  ASSERT_TRUE(journal->Append(9, "more").ok());
  const auto again = ReadJournal(path_);
  EXPECT_EQ(again->records.back().payload, "more");
  EXPECT_EQ(again->tip(), journal->tip());
}

TEST_F(JournalTest, EveryTruncationGivesAPrefixAndIsCutOrRefused) {
  const std::string good = Write();
  const JournalContents whole = *ReadJournal(path_);
  for (size_t size = 0; size < good.size(); ++size) {
    Overwrite(path_, good.substr(0, size));
    const auto contents = ReadJournal(path_);
    ASSERT_TRUE(contents.ok()) << size;
    EXPECT_TRUE(IsPrefix(*contents)) << size;
    EXPECT_EQ(contents->damage.ok(), size >= whole.header_bytes) << size;
    if (!contents->damage.ok()) continue;
    size_t expected = 0;
    while (whole.records[expected].end <= size) ++expected;
    EXPECT_EQ(contents->records.size(), expected) << size;
    EXPECT_EQ(CheckPin(*contents, whole.tip()).code(), Code::kBadData) << size;
    // an append after the cut is found again
    ASSERT_TRUE(Open()->Append(7, "new").ok());
    const auto after = ReadJournal(path_);
    EXPECT_EQ(after->records.size(), expected + 1) << size;
    EXPECT_EQ(after->records.back().payload, "new") << size;
  }
}

TEST_F(JournalTest, EveryBitFlipIsDamageAndNeverAWrongRecord) {
  const std::string good = Write();
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Overwrite(path_, WithBitFlipped(good, bit));
    const auto contents = ReadJournal(path_);
    if (!contents.ok()) {
      ADD_FAILURE() << "bit " << bit << ": " << contents.status().message();
      continue;
    }
    EXPECT_TRUE(IsPrefix(*contents)) << bit;
    EXPECT_EQ(contents->damage.code(), Code::kBadData) << bit;
    EXPECT_EQ(Journal::Open(path_, OnDamage::kRefuse, nullptr).status().code(), Code::kBadData);
    EXPECT_EQ(*ReadFile(path_), WithBitFlipped(good, bit)) << "left as it is";
  }
}

TEST_F(JournalTest, ZerosOfUnwrittenBlocksAreATornTail) {
  const std::string good = Write();
  const JournalContents whole = *ReadJournal(path_);
  for (size_t size = whole.records[2].end; size < good.size() - 32; ++size) {
    std::string bytes = good.substr(0, size);
    bytes.resize(good.size() + 4096, '\0');
    Overwrite(path_, bytes);
    const auto contents = ReadJournal(path_);
    EXPECT_TRUE(contents->damage.ok()) << size;
    EXPECT_EQ(contents->records.size(), 3U) << size;
    EXPECT_GT(contents->torn_bytes, 0U) << size;
  }
}

TEST_F(JournalTest, KeepsTheGoodPartAndTheDamagedFile) {
  const std::string good = Write();
  const JournalContents whole = *ReadJournal(path_);
  const std::string bad = WithBitFlipped(good, 8 * (whole.records[1].end + 3));
  Overwrite(path_, bad);
  JournalContents contents;
  auto journal = Open(&contents, OnDamage::kKeepGoodPart);
  EXPECT_EQ(Payloads(contents), (std::vector<std::string>{"first", ""}));
  EXPECT_EQ(*ReadFile(path_.string() + ".corrupt"), bad);
  EXPECT_TRUE(IsCorruptName(path_.string() + ".corrupt"));
  EXPECT_TRUE(CheckPin(contents, whole.tip()).ok()) << "a pin of the old journal says nothing here";
  ASSERT_TRUE(journal->Append(5, "again").ok());
  EXPECT_EQ(ReadJournal(path_)->records.size(), 3U);
}

TEST_F(JournalTest, PinsFindLostAndForeignRecords) {
  const auto journal = Open();
  ASSERT_TRUE(journal->Append(1, "a").ok());
  const JournalPin pin = journal->tip();
  ASSERT_TRUE(journal->Append(1, "b").ok());
  EXPECT_TRUE(CheckPin(*ReadJournal(path_), pin).ok());
  JournalPin wrong = pin;
  wrong.digest[0] = wrong.digest[0] == '0' ? '1' : '0';
  EXPECT_EQ(CheckPin(*ReadJournal(path_), wrong).code(), Code::kBadData);
  wrong = pin;
  wrong.bytes += 1;
  EXPECT_EQ(CheckPin(*ReadJournal(path_), wrong).code(), Code::kBadData);
}

// A header that is right but for its length: no record is as long, so none can be torn.
TEST_F(JournalTest, ARecordLongerThanAnyIsDamage) {
  std::string bytes = Write();
  std::string header("\xff\xff\xff\xff\1\0\0\0", 8);
  const uint32_t checksum = Crc32c(header);
  header.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  Overwrite(path_, bytes + header + std::string(100, 'x'));
  const JournalContents read = ReadJournal(path_).ValueOrThrow();
  EXPECT_EQ(read.records.size(), kPayloads.size());
  EXPECT_EQ(read.damage.message(), path_.string() + ": damaged in the record at byte " +
                                       std::to_string(bytes.size()) + ", after " +
                                       std::to_string(kPayloads.size()) + " good ones");
}

TEST_F(JournalTest, APinOfAnEmptyJournalHolds) {
  (void)Journal::Open(path_, OnDamage::kRefuse, nullptr).ValueOrThrow();
  const JournalContents empty = ReadJournal(path_).ValueOrThrow();
  JournalPin pin = empty.tip();
  EXPECT_TRUE(CheckPin(empty, pin).ok());
  pin.digest = "another";
  EXPECT_EQ(CheckPin(empty, pin).message(),
            "the journal's first 32 bytes are not those of another");
  ++pin.bytes;
  EXPECT_EQ(CheckPin(empty, pin).message(), "the journal has 32 good bytes, expected at least 33");
}

TEST_F(JournalTest, ALaterFormatIsRefusedWithoutTouchingIt) {
  const std::string bytes = OfFormat2(Write());
  Overwrite(path_, bytes);
  EXPECT_EQ(ReadJournal(path_).status().code(), Code::kConfig);
  EXPECT_EQ(Journal::Open(path_, OnDamage::kKeepGoodPart, nullptr).status().code(), Code::kConfig);
  EXPECT_EQ(*ReadFile(path_), bytes);
}

TEST_F(JournalTest, EachCallFailingKeepsWhatWasThereAndARepeatSucceeds) {
  const auto journal = Open();
  ASSERT_TRUE(journal->Append(1, "before").ok());
  size_t records = 1;
  for (int error : {ENOSPC, EIO}) {
    for (int n = 1;; ++n) {
      TEST_FailNthCall(n, error);
      const Status status = journal->Append(2, "x");
      if (TEST_FailurePending()) {
        TEST_FailNthCall(0, 0);
        ASSERT_TRUE(status.ok());
        ++records;
        break;
      }
      EXPECT_EQ(status.code(), Code::kIoError) << n;
      const auto contents = ReadJournal(path_);
      EXPECT_TRUE(contents->damage.ok());
      EXPECT_GE(contents->records.size(), records) << n;
      ASSERT_TRUE(journal->Append(2, "x").ok()) << n;
      EXPECT_EQ(ReadJournal(path_)->records.size(), ++records) << n;
      EXPECT_EQ(ReadJournal(path_)->tip(), journal->tip());
      EXPECT_EQ(CountTemporaries(folder_.path()), 0);
    }
  }
}

TEST_F(JournalTest, RepeatedFailuresAfterADeadFileKeepTheJournal) {
  const auto journal = Open();
  ASSERT_TRUE(journal->Append(1, "before").ok());
  TEST_FailNthCall(2, EIO);  // fsync: the file is dead from here on
  ASSERT_FALSE(journal->Append(2, "x").ok());
  for (int n = 1;; ++n) {
    TEST_FailNthCall(n, ENOSPC);
    const Status status = journal->Append(2, "x");
    if (TEST_FailurePending()) break;
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(ReadJournal(path_)->records[0].payload, "before") << n;
  }
  TEST_FailNthCall(0, 0);
  EXPECT_EQ(ReadJournal(path_)->records.size(), 2U);
  ASSERT_TRUE(journal->Append(3, "after").ok());
  EXPECT_EQ(ReadJournal(path_)->tip(), journal->tip());
}

// A child appends 5 records and tells each acknowledged one through a pipe; it is killed at its
// n-th call. What was acknowledged must be there.
TEST_F(JournalTest, AKillAtEachCallLosesNothingAcknowledged) {
  for (int n = 1;; ++n) {
    std::filesystem::remove(path_);
    int ledger[2];
    ASSERT_EQ(::pipe(ledger), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      TEST_KillAtNthCall(n);
      auto journal = Journal::Open(path_, OnDamage::kRefuse, nullptr);
      for (uint32_t i = 0; journal.ok() && i < 5; ++i) {
        if (!(*journal)->Append(i, std::string(100, static_cast<char>('a' + i))).ok()) ::_exit(1);
        (void)!::write(ledger[1], "x", 1);
      }
      ::_exit(journal.ok() ? 0 : 1);
    }
    ::close(ledger[1]);
    char acknowledged[16];
    size_t count = 0;
    while (::read(ledger[0], acknowledged, 1) == 1) ++count;
    ::close(ledger[0]);
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    JournalContents contents;
    const auto journal = Open(&contents);
    EXPECT_GE(contents.records.size(), count) << n;
    EXPECT_LE(contents.records.size(), count + 1) << n;
    for (size_t i = 0; i < contents.records.size(); ++i) {
      EXPECT_EQ(contents.records[i].payload, std::string(100, static_cast<char>('a' + i)));
    }
    if (WIFEXITED(state)) {
      EXPECT_EQ(WEXITSTATUS(state), 0);
      EXPECT_EQ(count, 5U);
      EXPECT_GT(n, 10);
      break;
    }
  }
}

TEST_F(JournalTest, AMissingJournalThatIsPinnedIsDamage) {
  const JournalPin pin = {.id = "00", .bytes = 99, .digest = "00"};
  EXPECT_EQ(Journal::Open(path_, Journal::OnDamage::kRefuse, nullptr, pin).status().code(),
            Code::kBadData);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(Journal::Open(path_, Journal::OnDamage::kKeepGoodPart, nullptr, pin).ok());
}

}  // namespace
}  // namespace samara
