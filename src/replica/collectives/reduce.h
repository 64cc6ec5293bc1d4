// Reductions whose bits do not depend on which rank holds which leaves: a fixed binary tree over
// the leaves, and folds of two buffers element by element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "samara/reduce_op.h"

namespace samara {

enum class ElementType : uint8_t { kF32, kF64, kBf16, kF16, kU8, kI8, kI16, kI32, kI64, kBool };
size_t ElementSize(ElementType type);  // bytes
const char* Name(ElementType type);

// kMean adds; the caller divides. Integers wrap; bool is 0 or 1, its sum the logical or.
const char* Name(ReduceOp op);

// into[i] = into[i] op from[i]. bf16 and f16 compute in float32 and round to nearest, ties to even;
// minimum and maximum hand on NaN. REQUIRES: equal sizes, whole elements.
void Fold(ReduceOp op, ElementType type, std::span<std::byte> into,
          std::span<const std::byte> from);

// A node of the tree over `leaves` leaves, which covers [begin, end). A node of n > 1 leaves splits
// after its largest power of two below n.
struct TreeNode {
  uint32_t begin = 0, end = 0;
  uint32_t size() const { return end - begin; }
  uint32_t middle() const;  // REQUIRES: size() > 1
  bool operator==(const TreeNode&) const = default;
};

// The largest whole subtrees that make up [begin, end), in order: what the holder of these leaves
// can fold without the others.
std::vector<TreeNode> Subtrees(uint32_t leaves, uint32_t begin, uint32_t end);

// A subtree's value.
struct Partial {
  TreeNode node;
  std::span<const std::byte> value;
};
// The root's value from partials that cover all leaves, in order. `out` may be none of the values,
// all of one size. The bits are the same whatever the partials.
void FoldTree(ReduceOp op, ElementType type, uint32_t leaves, std::span<const Partial> partials,
              std::span<std::byte> out);

// Takes the values of leaves begin, begin + 1, ... one after the other and folds at once what can
// be folded: at most a logarithm of them is held.
class TreeFolder {
 public:
  TreeFolder(ReduceOp op, ElementType type, uint32_t leaves, uint32_t begin, uint32_t end)
      : op_(op), type_(type), leaves_(leaves), next_(begin), end_(end) {}
  // REQUIRES: !complete().
  void Add(std::span<const std::byte> leaf);
  bool complete() const { return next_ == end_; }
  // Subtrees(leaves, begin, end) with their values, once complete().
  std::vector<Partial> partials() const;

 private:
  struct Held {
    TreeNode node;
    std::vector<std::byte> value;
  };
  const ReduceOp op_;
  const ElementType type_;
  const uint32_t leaves_;
  uint32_t next_;
  const uint32_t end_;
  std::vector<Held> held_;
};

}  // namespace samara
