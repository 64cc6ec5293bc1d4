#include "replica/collectives/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/check.h"

namespace samara {
namespace {

// Widened to float32, folded, rounded to nearest even.
struct Bf16 {
  uint16_t bits;
  static float Widen(Bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
  static Bf16 Narrow(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    if (std::isnan(x)) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
    return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
  }
};

struct F16 {
  uint16_t bits;
  static float Widen(F16 x) {
    const uint32_t sign = uint32_t{x.bits} >> 15 << 31, exponent = x.bits >> 10 & 31,
                   fraction = x.bits & 1023;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000 | fraction << 13);
    // exact: subnormals have 10 bits
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(fraction), -24)
                                : std::bit_cast<float>((exponent + 112) << 23 | fraction << 13);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  static F16 Narrow(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const auto sign = static_cast<uint16_t>(bits >> 31 << 15);
    const float magnitude = std::fabs(x);
    if (std::isnan(x)) return {static_cast<uint16_t>(sign | 0x7E00)};
    if (magnitude >= 65520.0F) return {static_cast<uint16_t>(sign | 0x7C00)};
    if (magnitude < 0x1p-14F) {  // subnormal, or zero: the FPU rounds to even
      return {static_cast<uint16_t>(
          sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24))))};
    }
    const auto absolute = std::bit_cast<uint32_t>(magnitude);
    const uint32_t rounded = absolute + 0xFFF + (absolute >> 13 & 1);
    return {static_cast<uint16_t>(sign | ((rounded >> 13) - (112U << 10)))};
  }
};

template <typename T>
T Apply(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kMean:
        return a + b;
      case ReduceOp::kProduct:
        return a * b;
      case ReduceOp::kMin:
        return std::isnan(a) || a < b ? a : b;
      case ReduceOp::kMax:
        return std::isnan(a) || a > b ? a : b;
    }
  } else {
    using U = std::make_unsigned_t<T>;  // wraps without undefined behaviour
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kMean:
        return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
      case ReduceOp::kProduct:
        return static_cast<T>(uint64_t{static_cast<U>(a)} * uint64_t{static_cast<U>(b)});
      case ReduceOp::kMin:
        return std::min(a, b);
      case ReduceOp::kMax:
        return std::max(a, b);
    }
  }
  return a;
}

// The operation is a constant of each loop, so that it is vectorised.
template <typename T, ReduceOp op>
void FoldLoop(std::byte* into, const std::byte* from, size_t n) {
  auto* a = reinterpret_cast<T*>(into);
  const auto* b = reinterpret_cast<const T*>(from);
  for (size_t i = 0; i < n; ++i) a[i] = Apply(op, a[i], b[i]);
}
template <typename Narrow>
void FoldNarrow(ReduceOp op, std::byte* into, const std::byte* from, size_t n) {
  auto* a = reinterpret_cast<Narrow*>(into);
  const auto* b = reinterpret_cast<const Narrow*>(from);
  for (size_t i = 0; i < n; ++i)
    a[i] = Narrow::Narrow(Apply(op, Narrow::Widen(a[i]), Narrow::Widen(b[i])));
}
template <typename T>
void FoldWide(ReduceOp op, std::byte* into, const std::byte* from, size_t n) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return FoldLoop<T, ReduceOp::kSum>(into, from, n);
    case ReduceOp::kMin:
      return FoldLoop<T, ReduceOp::kMin>(into, from, n);
    case ReduceOp::kMax:
      return FoldLoop<T, ReduceOp::kMax>(into, from, n);
    case ReduceOp::kProduct:
      return FoldLoop<T, ReduceOp::kProduct>(into, from, n);
  }
}
void FoldBool(ReduceOp op, std::byte* into, const std::byte* from, size_t n) {
  const bool both = op == ReduceOp::kMin || op == ReduceOp::kProduct;
  for (size_t i = 0; i < n; ++i) into[i] = both ? into[i] & from[i] : into[i] | from[i];
}

constexpr size_t kBlockBytes = 16384;  // folded at a time: stays in the nearest cache

class BlockFolder {
 public:
  BlockFolder(ReduceOp op, ElementType type, std::span<const Partial> partials, size_t offset,
              size_t bytes)
      : op_(op), type_(type), partials_(partials), offset_(offset), bytes_(bytes) {}

  void Fill(TreeNode node, std::span<std::byte> out) {
    if (partials_[next_].node == node) {
      const auto value = Take();
      std::copy(value.begin(), value.end(), out.begin());
      return;
    }
    CHECK(node.size() > 1) << "no partial for leaf " << node.begin;
    const uint32_t middle = node.middle();
    Fill({node.begin, middle}, out);
    const TreeNode right{middle, node.end};
    if (partials_[next_].node == right) return Fold(op_, type_, out, Take());
    std::vector<std::byte> scratch(bytes_);
    Fill(right, scratch);
    Fold(op_, type_, out, scratch);
  }

 private:
  std::span<const std::byte> Take() { return partials_[next_++].value.subspan(offset_, bytes_); }

  const ReduceOp op_;
  const ElementType type_;
  const std::span<const Partial> partials_;
  const size_t offset_, bytes_;
  size_t next_ = 0;
};

void Split(TreeNode node, uint32_t begin, uint32_t end, std::vector<TreeNode>& out) {
  if (node.end <= begin || end <= node.begin) return;
  if (begin <= node.begin && node.end <= end) {
    out.push_back(node);
    return;
  }
  Split({node.begin, node.middle()}, begin, end, out);
  Split({node.middle(), node.end}, begin, end, out);
}

}  // namespace

size_t ElementSize(ElementType type) {
  switch (type) {
    case ElementType::kF64:
    case ElementType::kI64:
      return 8;
    case ElementType::kF32:
    case ElementType::kI32:
      return 4;
    case ElementType::kBf16:
    case ElementType::kF16:
    case ElementType::kI16:
      return 2;
    case ElementType::kU8:
    case ElementType::kI8:
    case ElementType::kBool:
      return 1;
  }
  return 1;
}

const char* Name(ElementType type) {
  constexpr const char* kNames[] = {"float32", "float64", "bfloat16", "float16", "uint8",
                                    "int8",    "int16",   "int32",    "int64",   "bool"};
  return kNames[static_cast<size_t>(type)];
}

const char* Name(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "mean", "min", "max", "product"};
  return kNames[static_cast<size_t>(op)];
}

void Fold(ReduceOp op, ElementType type, std::span<std::byte> into,
          std::span<const std::byte> from) {
  DCHECK(into.size() == from.size() && into.size() % ElementSize(type) == 0);
  const size_t n = into.size() / ElementSize(type);
  std::byte* a = into.data();
  const std::byte* b = from.data();
  switch (type) {
    case ElementType::kF32:
      return FoldWide<float>(op, a, b, n);
    case ElementType::kF64:
      return FoldWide<double>(op, a, b, n);
    case ElementType::kBf16:
      return FoldNarrow<Bf16>(op, a, b, n);
    case ElementType::kF16:
      return FoldNarrow<F16>(op, a, b, n);
    case ElementType::kU8:
      return FoldWide<uint8_t>(op, a, b, n);
    case ElementType::kI8:
      return FoldWide<int8_t>(op, a, b, n);
    case ElementType::kI16:
      return FoldWide<int16_t>(op, a, b, n);
    case ElementType::kI32:
      return FoldWide<int32_t>(op, a, b, n);
    case ElementType::kI64:
      return FoldWide<int64_t>(op, a, b, n);
    case ElementType::kBool:
      return FoldBool(op, a, b, n);
  }
}

uint32_t TreeNode::middle() const { return begin + std::bit_ceil(size()) / 2; }

std::vector<TreeNode> Subtrees(uint32_t leaves, uint32_t begin, uint32_t end) {
  std::vector<TreeNode> nodes;
  if (begin < end) Split({0, leaves}, begin, end, nodes);
  return nodes;
}

void FoldTree(ReduceOp op, ElementType type, uint32_t leaves, std::span<const Partial> partials,
              std::span<std::byte> out) {
  for (size_t at = 0; at < out.size(); at += kBlockBytes) {
    const size_t bytes = std::min(kBlockBytes, out.size() - at);
    BlockFolder(op, type, partials, at, bytes).Fill({0, leaves}, out.subspan(at, bytes));
  }
}

void TreeFolder::Add(std::span<const std::byte> leaf) {
  CHECK(!complete());
  held_.push_back({{next_, next_ + 1}, {leaf.begin(), leaf.end()}});
  ++next_;
  // what is whole now is folded; what the tree splits elsewhere stays
  const auto whole = Subtrees(leaves_, held_.front().node.begin, next_);
  while (held_.size() > whole.size()) {
    Held right = std::move(held_.back());
    held_.pop_back();
    Fold(op_, type_, held_.back().value, right.value);
    held_.back().node.end = right.node.end;
  }
}

std::vector<Partial> TreeFolder::partials() const {
  CHECK(complete());
  std::vector<Partial> partials;
  for (const Held& held : held_) partials.push_back({held.node, held.value});
  return partials;
}

}  // namespace samara
