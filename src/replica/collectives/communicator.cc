#include "replica/collectives/communicator.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/check.h"
#include "core/checksum.h"
#include "core/log.h"
#include "replica/liveness/failure_detector.h"

namespace samara {
namespace {

constexpr size_t kSmallBytes = 32 << 10;  // up to here every rank reads all of it

std::string_view FileName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

void Copy(std::span<std::byte> to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

std::string Collective::text() const {
  return operation + (operand.empty() ? "" : " of " + operand) + " at " +
         std::string(FileName(site.file)) + ":" + std::to_string(site.line);
}

uint64_t Collective::fingerprint() const {
  const std::string whole = operation + '\n' + operand + '\n' + std::string(FileName(site.file)) +
                            '\n' + std::to_string(site.line) + ':' + std::to_string(site.column);
  return Checksum(std::as_bytes(std::span(whole)), 1);
}

Communicator::Communicator(std::unique_ptr<Transport> transport, const CommunicatorOptions& options)
    : transport_(std::move(transport)),
      options_(options),
      flight_file_(FlightFile(options.flight_folder, transport_->rank(), ProcessEnvironment())) {
  check_ = [this](std::span<const CollectiveHeader> all) { return Check(all); };
}

Communicator::~Communicator() = default;

Status Communicator::Check(std::span<const CollectiveHeader> all) const {
  const auto same = [&](const CollectiveHeader& h) {
    return h.fingerprint == all[0].fingerprint && h.sequence == all[0].sequence;
  };
  if (std::all_of(all.begin(), all.end(), same)) return {};
  std::map<std::pair<uint64_t, std::string>, std::vector<int>> groups;
  for (size_t r = 0; r < all.size(); ++r)
    groups[{all[r].sequence, EscapeControl(all[r].text)}].push_back(static_cast<int>(r));
  std::string text = "ranks call different collectives, nothing was mixed: ";
  bool first = true;
  for (const auto& [what, ranks] : groups) {
    text += (first ? "" : "; ") + NameRanks(ranks) + ": " + what.second + " (number " +
            std::to_string(what.first) + ")";
    first = false;
  }
  return Status(Code::kInternal, text);
}

Status Communicator::Late() const {
  const std::vector<int> missing = transport_->missing();
  std::string text = (missing.empty() ? std::string("a rank") : NameRanks(missing)) +
                     " did not come to " + header_.text + " (number " +
                     std::to_string(header_.sequence) + ") before its deadline";
  if (monitor_ != nullptr) text += "; " + monitor_->Describe();
  return Status(Code::kUnavailable, text);
}

void Communicator::Fail(const Status& why, bool record) {
  const MutexLock lock(mu_);
  if (!failure_.ok()) return;
  failure_ = abort_message_ = why;
  // a rank that is alone writes no record, unless a folder is set
  const bool asked = !options_.flight_folder.empty();
  if (!record || flight_file_.empty() || (!asked && (size() == 1 || flight_.empty()))) return;
  const Status written = flight_.Write(flight_file_, rank(), size(), why.message());
  if (written.ok())
    failure_ = {why.code(), why.message() + "; its last collectives: " + flight_file_.string()};
  else
    LogInfo("no flight record: " + written.message());
}

void Communicator::Abort(const Status& why) {
  Fail(why);
  transport_->Abort(failure());
}

void Communicator::Leave() {
  Fail(Status(Code::kUnavailable, "this rank has left"), /*record=*/false);
  transport_->Abort(failure());
}

Status Communicator::abort_message() const {
  const MutexLock lock(mu_);
  return abort_message_;
}

Status Communicator::failure() const {
  const MutexLock lock(mu_);
  return failure_;
}

Status Communicator::Run(const Collective& what, uint64_t bytes,
                         const std::function<Status(Transport::Round& first)>& rounds) {
  RETURN_IF_ERROR(failure());
  const std::string text = what.text();
  header_ = {.sequence = sequence_++, .fingerprint = what.fingerprint()};
  std::memcpy(header_.text, text.data(), std::min(text.size(), sizeof header_.text - 1));
  if (monitor_ != nullptr) {
    monitor_->Report(MakeActivity(header_.sequence, /*waiting=*/true, text));
  }
  flight_.Begin(header_.sequence, text, transport_->name(), bytes);
  Transport::Round first{
      .header = &header_,
      .check = &check_,
      .bytes = 0,
      .deadline = Now() + (header_.sequence == 0 ? options_.first_deadline : options_.deadline)};
  if (options_.release) options_.release();
  Status status = rounds(first);
  if (options_.reacquire) options_.reacquire(status);
  flight_.End(!status.ok());
  if (status.ok()) {
    if (monitor_ != nullptr) monitor_->Report({.sequence = header_.sequence});
    return {};
  }
  if (status.code() == kDeadlinePassed) status = Late();
  Fail(status);
  transport_->Abort(failure());
  if (monitor_ != nullptr) monitor_->Fail(abort_message());
  return failure();
}

Status Communicator::AllReduce(const Collective& what, ReduceOp op, ElementType type,
                               uint32_t leaves, std::span<const Partial> partials,
                               std::span<std::byte> out) {
  const size_t bytes = out.size(), element = ElementSize(type);
  const auto ranks = static_cast<size_t>(size());
  // rank r holds the leaves [r * each, (r + 1) * each)
  CHECK(leaves % ranks == 0) << leaves << " leaves on " << ranks << " ranks";
  const uint32_t each = leaves / static_cast<uint32_t>(ranks);
  std::vector<std::vector<TreeNode>> nodes(ranks);
  size_t most = 0;
  for (size_t r = 0; r < ranks; ++r) {
    nodes[r] =
        Subtrees(leaves, static_cast<uint32_t>(r) * each, static_cast<uint32_t>(r + 1) * each);
    most = std::max(most, nodes[r].size());
  }
  CHECK(partials.size() == nodes[static_cast<size_t>(rank())].size());
  if (ranks == 1) {
    return Run(what, bytes, [&](Transport::Round&) -> Status {
      FoldTree(op, type, leaves, partials, out);
      return {};
    });
  }
  // `at` of every rank's value p is p * stride + offset
  const auto fold = [&](std::span<const std::span<const std::byte>> all, size_t stride,
                        size_t length, std::span<std::byte> to) {
    std::vector<Partial> whole;
    for (size_t r = 0; r < ranks; ++r)
      for (size_t p = 0; p < nodes[r].size(); ++p)
        whole.push_back({nodes[r][p], all[r].subspan(p * stride, length)});
    FoldTree(op, type, leaves, whole, to);
  };
  return Run(what, bytes, [&](Transport::Round& round) -> Status {
    const size_t room = transport_->bytes_max() / most;
    if (bytes <= kSmallBytes / ranks && bytes <= room) {
      // small: every rank reads everything, one round
      round.bytes = bytes * most;
      return transport_->Gather(
          round,
          [&](std::span<std::byte> mine) {
            for (size_t p = 0; p < partials.size(); ++p)
              Copy(mine.subspan(p * bytes, bytes), partials[p].value);
          },
          [&](std::span<const std::span<const std::byte>> all) { fold(all, bytes, bytes, out); });
    }
    // large: rank r folds slice r of a block, then shows it
    const size_t slice_max = room / ranks / 64 * 64;
    const size_t block_max = slice_max * ranks;
    CHECK(slice_max > 0) << "the transport's rounds are too small";
    for (size_t at = 0; at < bytes; at += block_max) {
      const size_t block = std::min(block_max, bytes - at);
      const size_t slice = ((block + ranks - 1) / ranks + element - 1) / element * element;
      const auto length = [&](size_t r) {
        return r * slice >= block ? 0 : std::min(slice, block - r * slice);
      };
      const size_t mine_length = length(static_cast<size_t>(rank()));
      round.bytes = slice * most * ranks;
      scratch_.resize(slice);
      RETURN_IF_ERROR(transport_->Scatter(
          round,
          [&](std::span<std::byte> mine) {
            for (size_t r = 0; r < ranks; ++r)
              for (size_t p = 0; p < partials.size(); ++p)
                Copy(mine.subspan((r * most + p) * slice, length(r)),
                     partials[p].value.subspan(at + r * slice * (length(r) > 0), length(r)));
          },
          [&](std::span<const std::span<const std::byte>> all) {
            fold(all, slice, mine_length, {scratch_.data(), mine_length});
          }));
      round.header = nullptr;
      round.bytes = slice;
      RETURN_IF_ERROR(transport_->Gather(
          round,
          [&](std::span<std::byte> mine) {
            Copy(mine, {scratch_.data(), mine_length});
          },
          [&](std::span<const std::span<const std::byte>> all) {
            for (size_t r = 0; r < ranks; ++r)
              if (length(r) > 0)
                Copy(out.subspan(at + r * slice, length(r)), all[r].first(length(r)));
          }));
    }
    return {};
  });
}

Status Communicator::AllGather(const Collective& what, std::span<const std::byte> mine,
                               std::span<std::byte> out) {
  CHECK(out.size() == mine.size() * static_cast<size_t>(size()));
  return Run(what, mine.size(), [&](Transport::Round& round) -> Status {
    size_t at = 0;
    do {
      round.bytes = std::min(transport_->bytes_max(), mine.size() - at);
      RETURN_IF_ERROR(transport_->Gather(
          round, [&](std::span<std::byte> to) { Copy(to, mine.subspan(at, to.size())); },
          [&](std::span<const std::span<const std::byte>> all) {
            for (size_t r = 0; r < all.size(); ++r)
              Copy(out.subspan(r * mine.size() + at, all[r].size()), all[r]);
          }));
      round.header = nullptr;
      at += round.bytes;
    } while (at < mine.size());
    return {};
  });
}

Status Communicator::AllGatherRagged(const Collective& what, std::span<const std::byte> mine,
                                     std::vector<std::vector<std::byte>>& out) {
  return Run(what, mine.size(), [&](Transport::Round& round) -> Status {
    std::vector<uint64_t> sizes(static_cast<size_t>(size()));
    const uint64_t my_size = mine.size();
    round.bytes = sizeof my_size;
    RETURN_IF_ERROR(transport_->Gather(
        round, [&](std::span<std::byte> to) { std::memcpy(to.data(), &my_size, sizeof my_size); },
        [&](std::span<const std::span<const std::byte>> all) {
          for (size_t r = 0; r < all.size(); ++r)
            std::memcpy(&sizes[r], all[r].data(), sizeof(uint64_t));
        }));
    round.header = nullptr;
    const uint64_t largest = *std::max_element(sizes.begin(), sizes.end());
    out.assign(sizes.size(), {});
    for (size_t r = 0; r < sizes.size(); ++r) out[r].resize(sizes[r]);
    for (size_t at = 0; at < largest; at += round.bytes) {
      round.bytes = std::min<size_t>(transport_->bytes_max(), largest - at);
      const auto part = [&](size_t r) {
        return at >= sizes[r] ? 0 : std::min<size_t>(round.bytes, sizes[r] - at);
      };
      RETURN_IF_ERROR(transport_->Gather(
          round,
          [&](std::span<std::byte> to) {
            const size_t n = part(static_cast<size_t>(rank()));
            if (n > 0) Copy(to, mine.subspan(at, n));
          },
          [&](std::span<const std::span<const std::byte>> all) {
            for (size_t r = 0; r < all.size(); ++r)
              if (part(r) > 0) std::memcpy(out[r].data() + at, all[r].data(), part(r));
          }));
    }
    return {};
  });
}

Status Communicator::Broadcast(const Collective& what, int root, std::span<std::byte> data) {
  return Run(what, data.size(), [&](Transport::Round& round) -> Status {
    size_t at = 0;
    do {
      round.bytes = std::min(transport_->bytes_max(), data.size() - at);
      round.only = root;
      RETURN_IF_ERROR(transport_->Gather(
          round,
          [&](std::span<std::byte> to) {
            if (rank() == root) Copy(to, data.subspan(at, to.size()));
          },
          [&](std::span<const std::span<const std::byte>> all) {
            if (rank() != root) Copy(data.subspan(at, round.bytes), all[static_cast<size_t>(root)]);
          }));
      round.header = nullptr;
      at += round.bytes;
    } while (at < data.size());
    return {};
  });
}

Status Communicator::AllToAll(const Collective& what, std::span<const std::byte> mine,
                              std::span<std::byte> out) {
  const auto ranks = static_cast<size_t>(size());
  CHECK(mine.size() == out.size() && mine.size() % ranks == 0);
  const size_t piece = mine.size() / ranks;
  return Run(what, mine.size(), [&](Transport::Round& round) -> Status {
    const size_t part_max = transport_->bytes_max() / ranks;
    size_t at = 0;
    do {
      const size_t part = std::min(part_max, piece - at);
      round.bytes = part * ranks;
      RETURN_IF_ERROR(transport_->Scatter(
          round,
          [&](std::span<std::byte> to) {
            for (size_t r = 0; r < ranks; ++r)
              Copy(to.subspan(r * part, part), mine.subspan(r * piece + at, part));
          },
          [&](std::span<const std::span<const std::byte>> all) {
            for (size_t r = 0; r < ranks; ++r) Copy(out.subspan(r * piece + at, part), all[r]);
          }));
      round.header = nullptr;
      at += part;
    } while (at < piece);
    return {};
  });
}

Status Communicator::Barrier(const Collective& what) {
  return Delegate(what, 0, [](SteadyTime) { return Status(); });
}

Status Communicator::Delegate(const Collective& what, uint64_t bytes,
                              const std::function<Status(SteadyTime deadline)>& run) {
  return Run(what, bytes, [&](Transport::Round& round) -> Status {
    RETURN_IF_ERROR(transport_->Gather(
        round, [](auto) {}, [](auto) {}));
    return run(round.deadline);
  });
}

}  // namespace samara
