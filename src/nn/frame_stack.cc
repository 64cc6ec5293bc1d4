// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/frame_stack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/check.h"

namespace samara {
namespace {

std::array<float, 256> MakeUnitTable() {
  std::array<float, 256> table{};
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i) / 255.0F;
  return table;
}
const std::array<float, 256> kUnit = MakeUnitTable();

inline float Value(uint8_t byte) { return kUnit[byte]; }
inline float Value(float value) { return value; }

// Moves every pixel's planes one towards the oldest end and writes the newest one: one pass.
template <typename T>
void Shift(float* input, int64_t depth, bool newest_first, std::span<const T> frame) {
  const auto moved = static_cast<size_t>(depth - 1) * sizeof(float);
  for (const T& pixel : frame) {
    if (newest_first) {
      std::memmove(input + 1, input, moved);
      input[0] = Value(pixel);
    } else {
      std::memmove(input, input + 1, moved);
      input[depth - 1] = Value(pixel);
    }
    input += depth;
  }
}

// The usual depth with known sizes: the compiler turns it into shuffles.
template <typename T>
void Shift4(float* input, bool newest_first, std::span<const T> frame) {
  if (newest_first) {
    for (size_t i = 0; i < frame.size(); ++i) {
      float* p = input + 4 * i;
      const float a = p[0], b = p[1], c = p[2];
      p[0] = Value(frame[i]), p[1] = a, p[2] = b, p[3] = c;
    }
  } else {
    for (size_t i = 0; i < frame.size(); ++i) {
      float* p = input + 4 * i;
      const float a = p[1], b = p[2], c = p[3];
      p[0] = a, p[1] = b, p[2] = c, p[3] = Value(frame[i]);
    }
  }
}

}  // namespace

std::string_view Name(StackOrder order) {
  return order == StackOrder::kOldestFirst ? "oldest-first" : "newest-first";
}

std::string_view Name(StackReset reset) {
  switch (reset) {
    case StackReset::kRepeat:
      return "repeat";
    case StackReset::kZeros:
      return "zeros";
    case StackReset::kFront:
      return "front";
  }
  return "?";
}

FrameStack::FrameStack(FrameStackRule rule, size_t elements)
    : rule_(rule), elements_(elements), input_(elements * static_cast<size_t>(rule.depth)) {
  CHECK(elements > 0 && rule.depth > 0) << elements << " x " << rule.depth;
}

template <typename T>
void FrameStack::Start(std::span<const T> frame) {
  CHECK_EQ(frame.size(), elements_);
  const auto depth = static_cast<size_t>(rule_.depth);
  filled_ = 1;
  if (rule_.at_reset == StackReset::kRepeat) {
    for (size_t i = 0; i < elements_; ++i) {
      std::fill_n(input_.begin() + static_cast<ptrdiff_t>(i * depth), depth, Value(frame[i]));
    }
    return;
  }
  std::fill(input_.begin(), input_.end(), 0.0F);
  const bool first_plane =
      rule_.at_reset == StackReset::kFront || rule_.order == StackOrder::kNewestFirst;
  const size_t plane = first_plane ? 0 : depth - 1;
  for (size_t i = 0; i < elements_; ++i) input_[i * depth + plane] = Value(frame[i]);
}

template <typename T>
void FrameStack::Append(std::span<const T> frame) {
  CHECK_EQ(frame.size(), elements_);
  const auto depth = static_cast<size_t>(rule_.depth);
  if (rule_.at_reset == StackReset::kFront && filled_ < rule_.depth) {
    const auto plane = static_cast<size_t>(filled_++);
    for (size_t i = 0; i < elements_; ++i) input_[i * depth + plane] = Value(frame[i]);
    return;
  }
  const bool newest_first = rule_.order == StackOrder::kNewestFirst;
  if (depth == 4) {
    Shift4(input_.data(), newest_first, frame);
  } else {
    Shift(input_.data(), rule_.depth, newest_first, frame);
  }
}

void FrameStack::Reset(std::span<const uint8_t> frame) { Start(frame); }
void FrameStack::Reset(std::span<const float> frame) { Start(frame); }
void FrameStack::Push(std::span<const uint8_t> frame) { Append(frame); }
void FrameStack::Push(std::span<const float> frame) { Append(frame); }

std::string FrameStack::Save() const {
  std::string state(1, static_cast<char>(filled_));
  state.append(reinterpret_cast<const char*>(input_.data()), input_.size() * sizeof(float));
  return state;
}

Status FrameStack::Restore(std::string_view state) {
  const size_t bytes = input_.size() * sizeof(float);
  if (state.size() != bytes + 1) {
    return {Code::kBadData, "frame stack state of " + std::to_string(state.size()) +
                                " bytes: expected " + std::to_string(bytes + 1)};
  }
  filled_ = static_cast<unsigned char>(state[0]);
  std::memcpy(input_.data(), state.data() + 1, bytes);
  return Status::Ok();
}

}  // namespace samara
