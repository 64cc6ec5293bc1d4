#include "storage/journal.h"

#include <fmt/format.h>

#include <random>

#include "core/crc32c.h"
#include "core/log.h"
#include "storage/quarantine.h"

namespace samara {
namespace {

constexpr std::string_view kMagic = "samaraJ\n";
constexpr uint32_t kJournalFormat = 1;
constexpr size_t kIdBytes = 16;
constexpr size_t kHeaderBytes = 8 + 4 + kIdBytes + 4;
constexpr size_t kRecordHeaderBytes = 12;
constexpr size_t kDigestBytes = 32;

void PutU32(std::string& out, uint32_t value) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i));
}

// REQUIRES: 4 bytes at `at`.
uint32_t GetU32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return value;
}

std::string_view AsText(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string HexId(std::string_view id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (char c : id) text += {kDigits[static_cast<uint8_t>(c) >> 4], kDigits[c & 15]};
  return text;
}

std::string NewHeader() {
  std::string header(kMagic);
  PutU32(header, kJournalFormat);
  std::random_device device;  // tells journals apart; decides no number of a run
  for (size_t i = 0; i < kIdBytes / 4; ++i) PutU32(header, device());
  PutU32(header, Crc32c(header));
  return header;
}

std::string EncodeRecord(uint32_t type, std::string_view payload, Digest& chain) {
  std::string record;
  record.reserve(kRecordHeaderBytes + payload.size() + kDigestBytes);
  PutU32(record, static_cast<uint32_t>(payload.size()));
  PutU32(record, type);
  PutU32(record, Crc32c(record));
  record += payload;
  chain = Sha256().Update(AsText(chain)).Update(record).Finish();
  record += AsText(chain);
  return record;
}

// Reads the header into `contents`; says what is wrong with it.
Status ParseHeader(std::string_view bytes, JournalContents& contents) {
  if (bytes.size() < kHeaderBytes) return {Code::kBadData, "its header is cut off"};
  const std::string_view header = bytes.substr(0, kHeaderBytes);
  if (!header.starts_with(kMagic)) return {Code::kBadData, "not a samara journal"};
  if (GetU32(header, kHeaderBytes - 4) != Crc32c(header.substr(0, kHeaderBytes - 4)))
    return {Code::kBadData, "its header does not match its checksum"};
  if (GetU32(header, 8) != kJournalFormat) {
    return {Code::kConfig, "journal of format " + std::to_string(GetU32(header, 8)) +
                               ", this samara reads format 1: use the samara that wrote it"};
  }
  contents.id = HexId(header.substr(12, kIdBytes));
  contents.header_bytes = kHeaderBytes;
  contents.header_digest = Sha256().Update(header).Finish();
  return Status::Ok();
}

// Whether an interrupted append can have left `tail`: a part of one record, or blocks that were
// never written and read as zeros. `record_bytes`: what its header announces, 0 when it is invalid.
bool IsTorn(std::string_view tail, uint64_t record_bytes) {
  if (tail.size() < kRecordHeaderBytes || tail.size() < record_bytes) return true;
  const size_t end = std::min<size_t>(tail.size(), kDigestBytes);
  return tail.substr(tail.size() - end).find_first_not_of('\0') == std::string_view::npos;
}

void ParseRecords(std::string_view bytes, JournalContents& contents) {
  size_t at = kHeaderBytes;
  Digest chain = contents.header_digest;
  while (at < bytes.size()) {
    const std::string_view tail = bytes.substr(at);
    uint64_t record_bytes = 0;
    if (tail.size() >= kRecordHeaderBytes && GetU32(tail, 8) == Crc32c(tail.substr(0, 8)) &&
        GetU32(tail, 0) <= kJournalRecordBytesMax) {
      record_bytes = kRecordHeaderBytes + uint64_t{GetU32(tail, 0)} + kDigestBytes;
    }
    if (record_bytes != 0 && record_bytes <= tail.size()) {
      const std::string_view covered = tail.substr(0, record_bytes - kDigestBytes);
      const Digest digest = Sha256().Update(AsText(chain)).Update(covered).Finish();
      if (tail.substr(covered.size(), kDigestBytes) == AsText(digest)) {
        at += record_bytes, chain = digest;
        contents.records.push_back({.type = GetU32(tail, 4),
                                    .payload = std::string(covered.substr(kRecordHeaderBytes)),
                                    .end = at,
                                    .digest = digest});
        continue;
      }
    }
    if (IsTorn(tail, record_bytes)) {
      contents.torn_bytes = tail.size();
    } else {
      contents.damage = {Code::kBadData, "damaged in the record at byte " + std::to_string(at) +
                                             ", after " + std::to_string(contents.records.size()) +
                                             " good ones"};
    }
    return;
  }
}

// A journal with a new id and the records of `contents`.
std::string Reencode(const JournalContents& contents) {
  std::string bytes = NewHeader();
  Digest chain = Sha256().Update(bytes).Finish();
  for (const JournalRecord& r : contents.records) bytes += EncodeRecord(r.type, r.payload, chain);
  return bytes;
}

}  // namespace

JournalPin JournalContents::tip() const {
  const bool empty = records.empty();
  return {.id = id,
          .bytes = empty ? header_bytes : records.back().end,
          .digest = Hex(empty ? header_digest : records.back().digest)};
}

Result<JournalContents> ReadJournal(const RootedPath& path) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  JournalContents contents;
  Status header = ParseHeader(bytes, contents);
  if (header.code() == Code::kConfig) return header.Annotate(path.string());
  if (header.ok())
    ParseRecords(bytes, contents);
  else
    contents.damage = header;
  contents.damage = contents.damage.Annotate(path.string());
  return contents;
}

Status CheckPin(const JournalContents& journal, const JournalPin& pin) {
  if (pin.id != journal.id) return Status::Ok();
  const JournalPin tip = journal.tip();
  if (pin.bytes > tip.bytes) {
    return {Code::kBadData, "the journal has " + std::to_string(tip.bytes) +
                                " good bytes, expected at least " + std::to_string(pin.bytes)};
  }
  const Digest* found = pin.bytes == journal.header_bytes ? &journal.header_digest : nullptr;
  for (const JournalRecord& record : journal.records) {
    if (record.end == pin.bytes) found = &record.digest;
  }
  if (found != nullptr && Hex(*found) == pin.digest) return Status::Ok();
  return {Code::kBadData, "the journal's first " + std::to_string(pin.bytes) +
                              " bytes are not those of " + pin.digest};
}

Result<std::unique_ptr<Journal>> Journal::Open(const RootedPath& path, OnDamage on_damage,
                                               JournalContents* contents,
                                               const std::optional<JournalPin>& pin) {
  auto read = ReadJournal(path);
  if (!read.ok() && read.status().code() == Code::kNoInput) {
    const Status lost = {Code::kBadData, path.string() + ": missing"};
    if (pin && on_damage == OnDamage::kRefuse) return lost;
    if (pin) LogWarning(lost.message() + "; continuing with a new one");
    RETURN_IF_ERROR(WriteFileAtomic(path, NewHeader()));
    read = ReadJournal(path);
  }
  if (!read.ok()) return read.status();
  if (read->damage.ok() && pin) read->damage = CheckPin(*read, *pin).Annotate(path.string());
  if (!read->damage.ok()) {
    if (on_damage == OnDamage::kRefuse) return read->damage;
    // copied, not renamed: at no instant is there no journal
    const RootedPath aside = CorruptName(path);
    ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
    RETURN_IF_ERROR(WriteFileAtomic(aside, bytes));
    RETURN_IF_ERROR(WriteFileAtomic(path, Reencode(*read)));
    LogWarning(read->damage.message() + "; kept as " + aside.name() +
               ", continuing with the valid records");
    read = ReadJournal(path);
    if (!read.ok()) return read.status();
  }
  if (read->torn_bytes > 0) {
    LogWarning(path.string() + ": truncating " + std::to_string(read->torn_bytes) +
               " bytes of an interrupted append");
  }
  const JournalPin tip = read->tip();
  const Digest digest = read->records.empty() ? read->header_digest : read->records.back().digest;
  std::unique_ptr<Journal> journal(new Journal(path, tip, digest));
  ASSIGN_OR_RETURN(journal->file_, AppendFile::Open(path, static_cast<int64_t>(tip.bytes)));
  if (contents != nullptr) *contents = std::move(*read);
  return journal;
}

Status Journal::Append(uint32_t type, std::string_view payload) {
  if (payload.size() > kJournalRecordBytesMax)
    return {Code::kConfig,
            fmt::format("a record of {} MB; a journal's have at most {} MB: use a smaller network, "
                        "population or archive",
                        payload.size() >> 20, kJournalRecordBytesMax >> 20)};
  Digest chain = digest_;
  const std::string record = EncodeRecord(type, payload, chain);
  if (file_ == nullptr || file_->dead())
    RETURN_IF_ERROR(AppendToNewFile(record));
  else
    RETURN_IF_ERROR(file_->Append(record));
  digest_ = chain;
  tip_.bytes += record.size();
  tip_.digest = Hex(chain);
  return Status::Ok();
}

Status Journal::AppendToNewFile(const std::string& record) {
  file_ = nullptr;
  ASSIGN_OR_RETURN(std::string bytes, ReadFile(path_));
  ASSIGN_OR_RETURN(const JournalContents contents, ReadJournal(path_));
  RETURN_IF_ERROR(CheckPin(contents, tip_));
  if (contents.id != tip_.id || bytes.size() < tip_.bytes) {
    return {Code::kBadData, path_.string() + ": replaced by another process while in use"};
  }
  bytes.resize(tip_.bytes);
  RETURN_IF_ERROR(WriteFileAtomic(path_, bytes + record));
  ASSIGN_OR_RETURN(file_, AppendFile::Open(path_));
  return Status::Ok();
}

}  // namespace samara
