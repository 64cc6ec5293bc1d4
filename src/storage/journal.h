// Append-only journal of a run: what was acknowledged is on disk, and what is read is what was
// written.
//
// File (all numbers little-endian):
//   header: "samaraJ\n", u32 format, 16 random bytes (the journal's id), u32 CRC-32C of these 28
//   record: u32 length, u32 type, u32 CRC-32C of these 8, payload, SHA-256 of (digest before,
//           length, type, CRC, payload); "digest before" of the first record is SHA-256 of the
//           header
// The chained digest pins a record and everything before it: nothing can be changed, dropped or
// swapped unseen, except whole records at the end, which a JournalPin kept elsewhere finds.
//
// An append that was interrupted leaves a torn tail (a part of one record, or unwritten zeros): it
// was never acknowledged, so it is cut off. Anything else that does not verify is damage.
//
// Thread safety: none; one writer, which holds the lock of the run folder. Readers may read
// meanwhile and see the last records or a torn tail.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"
#include "core/sha256.h"
#include "core/status.h"

namespace samara {

constexpr size_t kJournalRecordBytesMax = size_t{1} << 28;

// A position: the journal `id` is at least `bytes` long and its chain reads `digest` there.
struct JournalPin {
  std::string id;  // hexadecimal
  uint64_t bytes = 0;
  std::string digest;  // hexadecimal
  bool operator==(const JournalPin&) const = default;
};

struct JournalRecord {
  uint32_t type = 0;
  std::string payload;
  // where the record ends, for pins
  uint64_t end = 0;
  Digest digest{};
};

struct JournalContents {
  std::vector<JournalRecord> records;  // the good ones, in order
  std::string id;
  uint64_t header_bytes = 0;
  Digest header_digest{};
  uint64_t torn_bytes = 0;  // after the good records, left by an interrupted append
  Status damage;            // kBadData: what follows the good records is damaged

  JournalPin tip() const;  // after the last good record
};

// kNoInput when missing. A damaged header gives no records and `damage`.
Result<JournalContents> ReadJournal(const RootedPath& path);
// Whether the journal holds what `pin` says; kBadData when it lost or changed it. A pin of another
// journal is no business of this one: ok.
Status CheckPin(const JournalContents& journal, const JournalPin& pin);

class Journal {
 public:
  enum class OnDamage {
    kRefuse,        // kBadData
    kKeepGoodPart,  // copy the damaged file to *.corrupt, go on with a new journal of the good
                    // records
  };

  // Opens for appending, creating the journal when missing. `contents` (may be null) receives what
  // is in it. A torn tail is cut off with a warning.
  // A journal that lost what `pin` says (of the checkpoint to resume from) is damaged; one that is
  // missing although there is a pin too, and a new one takes over.
  static Result<std::unique_ptr<Journal>> Open(const RootedPath& path, OnDamage on_damage,
                                               JournalContents* contents,
                                               const std::optional<JournalPin>& pin = {});

  // Returns ok once the record is durable. On any failure the journal is as before and the same
  // append may be repeated at any time: after a failed fsync it goes to a new file, since the
  // kernel may have dropped what the old one was given. REQUIRES: at most kJournalRecordBytesMax.
  Status Append(uint32_t type, std::string_view payload);

  const JournalPin& tip() const { return tip_; }

 private:
  Journal(RootedPath path, JournalPin tip, Digest digest)
      : path_(std::move(path)), tip_(std::move(tip)), digest_(digest) {}
  Status AppendToNewFile(const std::string& record);

  const RootedPath path_;
  JournalPin tip_;
  Digest digest_;                     // the chain's, binary
  std::unique_ptr<AppendFile> file_;  // null after a failed rewrite
};

}  // namespace samara
