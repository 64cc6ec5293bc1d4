// Tensors as bytes: what collectives carry and what their fingerprints say.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "nn/torch/torch.h"
#include "replica/collectives/reduce.h"

namespace samara {

using Leaves = std::vector<torch::Tensor>;

// kConfig for a type that collectives do not know.
Result<ElementType> ElementTypeOf(torch::ScalarType type);
torch::ScalarType ScalarTypeOf(ElementType type);
std::string DescribeTensor(const torch::Tensor& tensor);  // "float32[3,4]"
// "float32[3,4] + int64[2] in (**)": leaves of one type and shape are counted, not repeated.
std::string DescribeLeaves(const Leaves& leaves, const std::string& structure);

// The memory of a contiguous tensor on the CPU.
std::span<std::byte> BytesOf(const torch::Tensor& tensor);
// The same values, contiguous and on the CPU.
torch::Tensor OnHost(const torch::Tensor& tensor);
// Copies what OnHost(tensor) has become back to the tensor; nothing where they share memory.
void FromHost(const torch::Tensor& host, const torch::Tensor& tensor);

// Types, shapes and values as one record, and back; kBadData for anything else.
std::string Pack(const Leaves& leaves);
Result<Leaves> Unpack(std::string_view bytes);

}  // namespace samara
