#include "replica/torch/leaves.h"

#include "core/bytes.h"
#include "core/check.h"

namespace samara {
namespace {

constexpr std::pair<ElementType, torch::ScalarType> kTypes[] = {
    {ElementType::kF32, torch::kFloat32},   {ElementType::kF64, torch::kFloat64},
    {ElementType::kBf16, torch::kBFloat16}, {ElementType::kF16, torch::kFloat16},
    {ElementType::kU8, torch::kUInt8},      {ElementType::kI8, torch::kInt8},
    {ElementType::kI16, torch::kInt16},     {ElementType::kI32, torch::kInt32},
    {ElementType::kI64, torch::kInt64},     {ElementType::kBool, torch::kBool}};
constexpr int64_t kDimensionsMax = 64;

}  // namespace

Result<ElementType> ElementTypeOf(torch::ScalarType type) {
  for (const auto& [element, scalar] : kTypes)
    if (scalar == type) return element;
  return Status(Code::kConfig,
                std::string("collectives know no tensors of type ") + c10::toString(type));
}

torch::ScalarType ScalarTypeOf(ElementType type) {
  for (const auto& [element, scalar] : kTypes)
    if (element == type) return scalar;
  return torch::kFloat32;
}

std::string DescribeTensor(const torch::Tensor& tensor) {
  const auto type = ElementTypeOf(tensor.scalar_type());
  std::string text = type.ok() ? Name(*type) : c10::toString(tensor.scalar_type());
  text += '[';
  for (int64_t i = 0; i < tensor.dim(); ++i)
    text += (i == 0 ? "" : ",") + std::to_string(tensor.size(i));
  return text + ']';
}

std::string DescribeLeaves(const Leaves& leaves, const std::string& structure) {
  std::string text, last;
  size_t repeated = 0;
  const auto flush = [&] {
    if (last.empty()) return;
    text +=
        (text.empty() ? "" : " + ") + (repeated > 1 ? std::to_string(repeated) + " x " : "") + last;
  };
  for (const torch::Tensor& leaf : leaves) {
    std::string now = DescribeTensor(leaf);
    if (now != last) {
      flush();
      last = std::move(now);
      repeated = 0;
    }
    ++repeated;
  }
  flush();
  return structure.empty() || structure == "*" ? text : text + " in " + structure;
}

std::span<std::byte> BytesOf(const torch::Tensor& tensor) {
  CHECK(tensor.is_cpu() && tensor.is_contiguous());
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

torch::Tensor OnHost(const torch::Tensor& tensor) {
  return tensor.detach().to(torch::kCPU).contiguous();
}

void FromHost(const torch::Tensor& host, const torch::Tensor& tensor) {
  if (host.data_ptr() != tensor.data_ptr()) tensor.copy_(host);
}

std::string Pack(const Leaves& leaves) {
  ByteWriter out;
  out.Put(static_cast<uint32_t>(leaves.size()));
  for (const torch::Tensor& leaf : leaves) {
    const torch::Tensor host = OnHost(leaf);
    out.Put(static_cast<uint32_t>(ElementTypeOf(host.scalar_type()).ValueOrThrow()));
    out.Put(static_cast<uint32_t>(host.dim()));
    for (const int64_t size : host.sizes()) out.Put(size);
    const auto bytes = BytesOf(host);
    out.PutBytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return out.Take();
}

Result<Leaves> Unpack(std::string_view bytes) {
  const Status bad(Code::kBadData, "a message between ranks that is no list of tensors");
  ByteReader in(bytes);
  Leaves leaves;
  const auto count = in.Get<uint32_t>();
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    const auto type = in.Get<uint32_t>();
    const auto dimensions = in.Get<uint32_t>();
    if (type > static_cast<uint32_t>(ElementType::kBool) || dimensions > kDimensionsMax) return bad;
    const auto element = static_cast<ElementType>(type);
    std::vector<int64_t> sizes(dimensions);
    uint64_t expected = ElementSize(element);
    for (int64_t& size : sizes) {
      size = in.Get<int64_t>();
      if (size < 0 || (size > 0 && expected > bytes.size() / static_cast<uint64_t>(size)))
        return bad;
      expected *= static_cast<uint64_t>(size);
    }
    const std::string_view data = in.GetBytes();
    if (!in.ok() || data.size() != expected) return bad;
    torch::Tensor leaf = torch::empty(sizes, ScalarTypeOf(element));
    if (!data.empty()) std::memcpy(leaf.data_ptr(), data.data(), data.size());
    leaves.push_back(std::move(leaf));
  }
  if (!in.AtEnd()) return bad;
  return leaves;
}

}  // namespace samara
