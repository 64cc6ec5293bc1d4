// The parsers of what a resume reads: records of the journal, an agent's state, and a journal whose
// last bytes were overwritten.
#include <unistd.h>

#include <filesystem>

#include "core/check.h"
#include "core/log.h"
#include "evo/algorithms/ga.h"
#include "evo/genome/genome.h"
#include "storage/agent_state.h"
#include "storage/evolution_journal.h"
#include "storage/journal.h"

namespace samara {
namespace {

// Accepted bytes are encoded and decoded again to the same bytes.
template <typename Record>
void RoundTrip(std::string_view bytes) {
  const auto record = Record::Decode(bytes);
  if (!record.ok()) return;
  const std::string again = record->Encode();
  const auto decoded = Record::Decode(again);
  CHECK(decoded.ok() && decoded->Encode() == again);
}

Path TemporaryFile() {
  return std::filesystem::temp_directory_path() / ("fuzz_records." + std::to_string(::getpid()));
}

// A journal of three records.
std::string MakeJournal() {
  const Path file = TemporaryFile();
  {
    auto journal = Journal::Open(file, Journal::OnDamage::kRefuse, nullptr);
    CHECK(journal.ok());
    for (const char* payload : {"first", "", "the third"})
      CHECK((*journal)->Append(kGenerationRecord, payload).ok());
  }
  const auto bytes = ReadFile(file);
  std::filesystem::remove(file);
  CHECK(bytes.ok());
  return *bytes;
}

// `bytes` in place of what a journal holds from byte `at` on.
void Overwritten(size_t at, std::string_view bytes) {
  static const std::string journal = MakeJournal();
  const std::string whole = journal.substr(0, at % (journal.size() + 1)) + std::string(bytes);
  const Path file = TemporaryFile();
  {
    auto out = AppendFile::Open(file, 0, AppendFile::Durability::kBuffered);
    CHECK(out.ok() && (*out)->Append(whole).ok());
  }
  const auto read = ReadJournal(file);
  std::filesystem::remove(file);
  if (!read.ok() || read->header_bytes == 0) return;
  // random bytes cannot extend the chain: the records are the first ones of the true journal
  CHECK(read->records.size() <= 3);
  if (read->damage.ok()) {
    CHECK(read->tip().bytes + read->torn_bytes == whole.size());
  }
  CHECK(journal.starts_with(whole.substr(0, read->tip().bytes)));
}

}  // namespace
}  // namespace samara

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace samara;
  SetLogLevel(LogLevel::kError);
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  switch (data[0] % 5) {
    case 0:
      RoundTrip<GenerationRecord>(bytes);
      break;
    case 1:
      RoundTrip<GaState>(bytes);
      break;
    case 2:
      RoundTrip<AgentState>(bytes);
      break;
    case 3:
      RoundTrip<Genome>(bytes);
      break;
    case 4:
      Overwritten(data[1], bytes);
      break;
  }
  return 0;
}
