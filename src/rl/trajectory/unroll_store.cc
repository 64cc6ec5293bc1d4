#include "rl/trajectory/unroll_store.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/bytes.h"
#include "core/check.h"

namespace samara {
namespace {

template <typename T>
void CopyRow(std::span<const T> row, std::vector<T>& rows, size_t i) {
  std::copy(row.begin(), row.end(), rows.begin() + static_cast<ptrdiff_t>(i * row.size()));
}

template <typename T>
std::span<const T> Row(const std::vector<T>& rows, size_t size, size_t i) {
  return std::span(rows).subspan(i * size, size);
}

}  // namespace

UnrollStore::UnrollStore(const EntryShape& shape, const UnrollConfig& config)
    : shape_(shape), config_(config), complete_(config.buffers) {
  CHECK(config.slots > 0 && config.length > 0);
  CHECK(config.buffers >= config.slots) << "a buffer a slot, at least";
  for (uint32_t i = 0; i < config.slots; ++i) {
    streams_.emplace_back(config.overlap / config.length + 2);
    streams_.back().tail = std::move(*MakeUnroll(config.overlap + 1));
  }
  for (uint32_t i = 0; i < config.buffers; ++i) free_.push_back(MakeUnroll(entries()));
}

std::unique_ptr<Unroll> UnrollStore::MakeUnroll(uint32_t entries) const {
  auto unroll = std::make_unique<Unroll>();
  unroll->overlap = config_.overlap;
  unroll->headers.resize(entries);
  unroll->observations.resize(entries * shape_.observation_bytes);
  unroll->action_values.resize(entries * shape_.action_values);
  unroll->behaviour.resize(entries * shape_.behaviour);
  unroll->values.resize(entries * shape_.values);
  unroll->state.resize(shape_.state);
  unroll->history.resize(shape_.history_bytes);
  return unroll;
}

std::unique_ptr<Unroll> UnrollStore::FreeBuffer() {
  const MutexLock lock(mu_);
  std::unique_ptr<Unroll> buffer;
  if (!free_.empty()) {
    buffer = std::move(free_.back());
    free_.pop_back();
  } else if (config_.drop_oldest && !complete_.empty()) {
    buffer = complete_.Pop();
    ++counters_.dropped;
  }
  return buffer;
}

bool UnrollStore::Reserve(uint32_t slot) {
  Stream& stream = streams_[slot];
  if (stream.filling == nullptr) {
    stream.filling = FreeBuffer();
    if (stream.filling != nullptr) Begin(stream, slot);
  }
  return stream.filling != nullptr;
}

// The buffer gets what stands before the stream's next entry: its tail, or absence.
void UnrollStore::Begin(Stream& stream, uint32_t slot) const {
  Unroll& unroll = *stream.filling;
  unroll.slot = slot;
  unroll.entries = 0;
  unroll.index = stream.completed;
  unroll.finals.clear();
  std::fill(unroll.state.begin(), unroll.state.end(), 0.0f);
  std::fill(unroll.history.begin(), unroll.history.end(), std::byte{0});
  if (!stream.begun) return AddAbsent(unroll);
  if (stream.unrolls * config_.length >= config_.overlap) {
    Beginning beginning = stream.beginnings.Pop();
    unroll.state.swap(beginning.state), unroll.history.swap(beginning.history);
  }
  for (uint32_t i = 0; i <= config_.overlap; ++i) CopyEntry(stream.tail, i, unroll);
  unroll.finals = stream.tail.finals;
}

// `overlap` entries of nothing.
void UnrollStore::AddAbsent(Unroll& unroll) const {
  const auto clear = [&](auto& rows, size_t size) {
    std::fill_n(rows.begin(), config_.overlap * size,
                typename std::decay_t<decltype(rows)>::value_type());
  };
  EntryHeader absent;
  absent.absent = true;
  std::fill_n(unroll.headers.begin(), config_.overlap, absent);
  clear(unroll.observations, shape_.observation_bytes);
  clear(unroll.action_values, shape_.action_values);
  clear(unroll.behaviour, shape_.behaviour);
  clear(unroll.values, shape_.values);
  unroll.entries = config_.overlap;
}

void UnrollStore::Append(uint32_t slot, const Entry& entry) {
  CHECK_EQ(entry.observation.size(), shape_.observation_bytes);
  CHECK_EQ(entry.action_values.size(), shape_.action_values);
  CHECK_EQ(entry.behaviour.size(), shape_.behaviour);
  CHECK_EQ(entry.values.size(), shape_.values);
  Stream& stream = streams_[slot];
  CHECK(stream.filling != nullptr) << "slot " << slot << " has no room: Reserve first";
  const EntryHeader& header = entry.header;
  if (header.incarnation != stream.incarnation) Drop(slot);
  stream.incarnation = header.incarnation;

  Unroll& unroll = *stream.filling;
  if (unroll.entries == 0) {
    CHECK(entry.state.size() == shape_.state && entry.history.size() == shape_.history_bytes);
    std::copy(entry.state.begin(), entry.state.end(), unroll.state.begin());
    std::copy(entry.history.begin(), entry.history.end(), unroll.history.begin());
  } else {
    KeepState(stream, entry);
  }
  ++stream.entries;
  Write(unroll, entry);
  if (unroll.entries < entries()) return;
  KeepEnd(stream);
  Complete(stream);
}

// The next unroll begins with the last overlap + 1 entries of this one.
void UnrollStore::KeepEnd(Stream& stream) const {
  const Unroll& unroll = *stream.filling;
  stream.begun = true;
  ++stream.unrolls;
  stream.tail.entries = 0;
  stream.tail.finals.clear();
  for (uint32_t i = config_.length; i < entries(); ++i) CopyEntry(unroll, i, stream.tail);
  for (const Unroll::Final& final : unroll.finals) {
    if (final.entry >= config_.length)
      stream.tail.finals.push_back({final.entry - config_.length, final.observation});
  }
}

bool UnrollStore::NeedsState(uint32_t slot) const {
  const Stream& stream = streams_[slot];
  const bool first = stream.filling != nullptr && stream.filling->entries == 0;
  // what follows a stream that was dropped may begin an unroll anywhere
  return first || (stream.entries + config_.overlap) % config_.length == 0;
}

// Stores the state of the stream's next entry, if an unroll will begin with it.
void UnrollStore::KeepState(Stream& stream, const Entry& entry) const {
  if ((stream.entries + config_.overlap) % config_.length != 0) return;
  CHECK(entry.state.size() == shape_.state && entry.history.size() == shape_.history_bytes);
  stream.beginnings.Push(
      {{entry.state.begin(), entry.state.end()}, {entry.history.begin(), entry.history.end()}});
}

void UnrollStore::Write(Unroll& unroll, const Entry& entry) const {
  const uint32_t i = unroll.entries++;
  unroll.headers[i] = entry.header;
  CopyRow(entry.observation, unroll.observations, i);
  CopyRow(entry.action_values, unroll.action_values, i);
  CopyRow(entry.behaviour, unroll.behaviour, i);
  CopyRow(entry.values, unroll.values, i);
  if (!entry.final_observation.empty()) {
    CHECK_EQ(entry.final_observation.size(), shape_.observation_bytes);
    unroll.finals.push_back({i, {entry.final_observation.begin(), entry.final_observation.end()}});
  }
}

void UnrollStore::CopyEntry(const Unroll& from, uint32_t i, Unroll& to) const {
  const uint32_t at = to.entries++;
  to.headers[at] = from.headers[i];
  CopyRow(Row(from.observations, shape_.observation_bytes, i), to.observations, at);
  CopyRow(Row(from.action_values, shape_.action_values, i), to.action_values, at);
  CopyRow(Row(from.behaviour, shape_.behaviour, i), to.behaviour, at);
  CopyRow(Row(from.values, shape_.values, i), to.values, at);
}

void UnrollStore::Complete(Stream& stream) {
  ++stream.completed;
  const MutexLock lock(mu_);
  complete_.Push(std::move(stream.filling));
  ++counters_.completed;
  completed_.NotifyOne();
}

void UnrollStore::Drop(uint32_t slot) {
  Stream& stream = streams_[slot];
  stream.begun = false;
  stream.unrolls = stream.entries = 0;
  stream.beginnings.Clear();
  if (stream.filling == nullptr) return;
  if (stream.filling->entries > config_.overlap) {
    const MutexLock lock(mu_);
    ++counters_.dropped_partial;
  }
  Begin(stream, slot);
}

namespace {

template <typename T>
void PutRows(ByteWriter& out, std::span<const T> rows) {
  out.PutBytes({reinterpret_cast<const char*>(rows.data()), rows.size_bytes()});
}

template <typename T>
bool GetRows(ByteReader& in, std::span<T> rows) {
  const std::string_view bytes = in.GetBytes();
  if (!in.ok() || bytes.size() != rows.size_bytes()) return false;
  if (!bytes.empty()) std::memcpy(rows.data(), bytes.data(), bytes.size());
  return true;
}

template <typename T>
std::span<T> All(std::vector<T>& rows) {
  return rows;
}

}  // namespace

bool AreSound(std::span<const EntryHeader> headers, int64_t choices) {
  constexpr size_t kFirst = offsetof(EntryHeader, terminated);
  static_assert(offsetof(EntryHeader, episode_ended) == kFirst + 3);
  return std::ranges::all_of(headers, [choices](const EntryHeader& header) {
    uint32_t flags = 0;
    std::memcpy(&flags, reinterpret_cast<const char*>(&header) + kFirst, sizeof flags);
    const auto among = [choices](int32_t a) { return choices == 0 || (a >= 0 && a < choices); };
    return (flags & ~0x01010101U) == 0 && among(header.action) && among(header.previous_action);
  });
}

std::string UnrollStore::Save(uint32_t slot) const {
  const Stream& stream = streams_[slot];
  CHECK(stream.filling == nullptr) << "slot " << slot << " is in the middle of an unroll";
  ByteWriter out;
  out.Put(stream.begun).Put(stream.incarnation).Put(stream.entries).Put(stream.unrolls);
  out.Put(stream.completed);
  const Unroll& tail = stream.tail;
  PutRows<EntryHeader>(out, tail.headers);
  PutRows<std::byte>(out, tail.observations);
  PutRows<float>(out, tail.action_values);
  PutRows<float>(out, tail.behaviour);
  PutRows<float>(out, tail.values);
  out.Put(uint64_t{tail.finals.size()});
  for (const Unroll::Final& final : tail.finals) {
    out.Put(final.entry);
    PutRows<std::byte>(out, final.observation);
  }
  out.Put(uint64_t{stream.beginnings.size()});
  for (size_t i = 0; i < stream.beginnings.size(); ++i) {
    PutRows<float>(out, stream.beginnings[i].state);
    PutRows<std::byte>(out, stream.beginnings[i].history);
  }
  return out.Take();
}

// Beginnings that a stream holds between two unrolls; nothing where its counts contradict each
// other.
std::optional<uint64_t> UnrollStore::Beginnings(const Stream& stream) const {
  const uint64_t unrolls = stream.unrolls, length = config_.length, overlap = config_.overlap;
  if (!stream.begun)
    return unrolls + stream.entries == 0 ? std::optional<uint64_t>(0) : std::nullopt;
  if (unrolls == 0 || stream.entries == 0 || (stream.entries - 1) % length != 0 ||
      (stream.entries - 1) / length != unrolls)
    return std::nullopt;
  // one for each entry so far at which an unroll begins, less those that have begun with one
  return unrolls + overlap / length + 1 - std::max(unrolls, (overlap + length - 1) / length);
}

Status UnrollStore::Restore(uint32_t slot, std::string_view saved) {
  Stream& stream = streams_[slot];
  const Status bad(Code::kBadData, "the unroll of slot " + std::to_string(slot) +
                                       " has another shape than this run's");
  ByteReader in(saved);
  stream.begun = in.Get<bool>();
  stream.incarnation = in.Get<uint32_t>();
  stream.entries = in.Get<uint64_t>(), stream.unrolls = in.Get<uint64_t>();
  stream.completed = in.Get<uint64_t>();
  Unroll& tail = stream.tail;
  tail.entries = config_.overlap + 1;
  if (!GetRows(in, All(tail.headers)) || !AreSound(tail.headers, shape_.choices) ||
      !GetRows(in, All(tail.observations)) || !GetRows(in, All(tail.action_values)) ||
      !GetRows(in, All(tail.behaviour)) || !GetRows(in, All(tail.values)))
    return bad;
  tail.finals.clear();
  const auto finals = in.Get<uint64_t>();
  for (uint64_t i = 0; i < finals; ++i) {
    Unroll::Final final{in.Get<uint32_t>(), std::vector<std::byte>(shape_.observation_bytes)};
    if (final.entry >= tail.entries || !GetRows(in, All(final.observation))) return bad;
    tail.finals.push_back(std::move(final));
  }
  stream.beginnings.Clear();
  const auto beginnings = in.Get<uint64_t>();
  if (beginnings != Beginnings(stream)) return bad;
  for (uint64_t i = 0; i < beginnings; ++i) {
    Beginning beginning{std::vector<float>(shape_.state),
                        std::vector<std::byte>(shape_.history_bytes)};
    if (!GetRows(in, All(beginning.state)) || !GetRows(in, All(beginning.history))) return bad;
    stream.beginnings.Push(std::move(beginning));
  }
  return in.AtEnd() ? Status::Ok() : bad;
}

std::vector<UnrollStore::Loan> UnrollStore::Take(size_t most) {
  const MutexLock lock(mu_);
  std::vector<Loan> taken;
  taken.reserve(std::min(most, complete_.size()));
  while (taken.size() < most && !complete_.empty())
    taken.emplace_back(complete_.Pop().release(), GiveBack{this});
  return taken;
}

bool UnrollStore::WaitFor(size_t count, std::chrono::milliseconds timeout) const {
  const MutexLock lock(mu_);
  return completed_.WaitFor(mu_, timeout,
                            [&]() REQUIRES(mu_) { return complete_.size() >= count; });
}

void UnrollStore::GiveBack::operator()(Unroll* unroll) const {
  const MutexLock lock(store->mu_);
  store->free_.emplace_back(unroll);
}

UnrollStore::Counters UnrollStore::counters() const {
  const MutexLock lock(mu_);
  Counters counters = counters_;
  counters.waiting = complete_.size(), counters.free = free_.size();
  return counters;
}

}  // namespace samara
