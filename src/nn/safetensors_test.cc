// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "nn/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

#include "core/files.h"

namespace samara::safetensors_test {
namespace {

Safetensors Sample() {
  Safetensors file;
  const float weights[] = {1.5f, -0.0f, 3e-39f, std::numeric_limits<float>::infinity(), 5, 6};
  file.tensors["fc.weight"] = Tensor::OfFloats({2, 3}, weights);
  file.tensors["a scalar"] = Tensor::OfFloats({}, std::vector<float>{7});
  file.tensors["empty"] = Tensor::OfFloats({0, 4}, {});
  file.tensors["frame"] = {Tensor::Type::kUint8, {3, 1}, std::string("\x00\xff\x07", 3)};
  file.metadata = {{"network", "LargeModel"}, {"quote", "\"\\ \xc3\xa9\n"}};
  return file;
}

void ExpectEqual(const Safetensors& a, const Safetensors& b) {
  EXPECT_EQ(a.metadata, b.metadata);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_TRUE(b.tensors.contains(name)) << name;
    const Tensor& other = b.tensors.at(name);
    EXPECT_EQ(tensor.type, other.type) << name;
    EXPECT_EQ(tensor.shape, other.shape) << name;
    EXPECT_EQ(tensor.bytes, other.bytes) << name;
  }
}

std::string Framed(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

void ExpectRefused(const std::string& bytes, const std::string& expected = "") {
  const auto file = ParseSafetensors(bytes);
  ASSERT_FALSE(file.ok()) << bytes.substr(0, 200);
  EXPECT_EQ(file.status().code(), Code::kBadData);
  EXPECT_NE(file.status().message().find(expected), std::string::npos) << file.status().message();
}

class SafetensorsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "samara-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Runs a Python program in the folder; true when it exits with 0.
  bool Python(const std::string& program) const {
    std::ofstream(folder_ / "program.py") << program;
    const std::string command = "cd " + folder_.string() + " && " SAMARA_PYTHON " program.py";
    return std::system(command.c_str()) == 0;
  }

  Path folder_;
};

TEST_F(SafetensorsTest, RoundTripKeepsEveryByte) {
  const std::string bytes = FormatSafetensors(Sample()).ValueOrThrow();
  ExpectEqual(ParseSafetensors(bytes).ValueOrThrow(), Sample());
  EXPECT_EQ(FormatSafetensors(ParseSafetensors(bytes).ValueOrThrow()).ValueOrThrow(), bytes);
  ExpectEqual(ParseSafetensors(FormatSafetensors({}).ValueOrThrow()).ValueOrThrow(), {});
}

TEST_F(SafetensorsTest, PythonPackageReadsOurs) {
  const std::string bytes = FormatSafetensors(Sample()).ValueOrThrow();
  ASSERT_TRUE(WriteFileAtomic(folder_ / "ours.safetensors", bytes).ok());
  EXPECT_TRUE(Python(R"(
import numpy as np
from safetensors import safe_open
with safe_open("ours.safetensors", "np") as f:
    assert sorted(f.keys()) == ["a scalar", "empty", "fc.weight", "frame"], f.keys()
    assert f.metadata() == {"network": "LargeModel", "quote": "\"\\ \u00e9\n"}, f.metadata()
    w = f.get_tensor("fc.weight")
    assert w.dtype == np.float32 and w.shape == (2, 3)
    expected = np.array([[1.5, -0.0, 3e-39], [np.inf, 5, 6]], np.float32)
    assert w.tobytes() == expected.tobytes()
    assert f.get_tensor("a scalar").shape == () and f.get_tensor("a scalar") == 7
    assert f.get_tensor("empty").shape == (0, 4)
    frame = f.get_tensor("frame")
    assert frame.dtype == np.uint8 and frame.tolist() == [[0], [255], [7]]
)"));
}

TEST_F(SafetensorsTest, ReadsWhatThePythonPackageWrote) {
  ASSERT_TRUE(Python(R"(
import numpy as np
from safetensors.numpy import save_file
save_file({"z": np.array([[1.5, -2.0]], np.float32), "a": np.arange(5, dtype=np.uint8),
           "s": np.array(3, np.float32)}, "theirs.safetensors", metadata={"k": "v\u00e9"})
)"));
  const auto file =
      ParseSafetensors(ReadFile(folder_ / "theirs.safetensors").ValueOrThrow()).ValueOrThrow();
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"k", "v\xc3\xa9"}}));
  ASSERT_EQ(file.tensors.size(), 3u);
  EXPECT_EQ(file.tensors.at("z").Floats(), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(file.tensors.at("z").shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(file.tensors.at("a").bytes, std::string("\0\1\2\3\4", 5));
  EXPECT_EQ(file.tensors.at("s").Floats(), (std::vector<float>{3}));
  EXPECT_TRUE(file.tensors.at("s").shape.empty());
}

TEST_F(SafetensorsTest, RefusesEveryTruncation) {
  const std::string bytes = FormatSafetensors(Sample()).ValueOrThrow();
  for (size_t n = 0; n < bytes.size(); ++n) ExpectRefused(bytes.substr(0, n));
  ExpectRefused(bytes + '\0', "bytes follow");
}

// A flipped bit may still spell a valid header (a letter of a name), never a crash, and a file that
// passes is an exact one again.
TEST_F(SafetensorsTest, SurvivesEveryHeaderBitFlip) {
  const std::string bytes = FormatSafetensors(Sample()).ValueOrThrow();
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  size_t refused = 0;
  for (size_t bit = 0; bit < (8 + length) * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    const auto file = ParseSafetensors(damaged);
    EXPECT_TRUE(bit >= 64 || !file.ok()) << bit;
    if (!file.ok()) {
      ++refused;
      EXPECT_EQ(file.status().code(), Code::kBadData);
    }
  }
  EXPECT_GT(refused, length * 8 / 2);
}

TEST_F(SafetensorsTest, RefusesHostileHeaders) {
  const std::string entry = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  ASSERT_TRUE(ParseSafetensors(Framed("{\"a\":{" + entry + "}}", "1234")).ok());
  ExpectRefused(Framed(""), "not a JSON object");
  ExpectRefused(Framed("[]"), "not a JSON object");
  ExpectRefused(Framed("{} x"), "not a JSON object");
  ExpectRefused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "at most 1 MiB");
  ExpectRefused(Framed(std::string((1 << 20) + 8, ' ')), "at most 1 MiB");
  ExpectRefused(Framed(std::string(1 << 20, '[')), "nested");
  ExpectRefused(Framed("{\"a\":{\"b\":{\"c\":{}}}}"), "nested");
  ExpectRefused(Framed("{\"a\":{\"b\":{\"c\":{\"d\":{\"e\":1}}}}}"), "nested");
  ExpectRefused(Framed("{\"a\":3}"), "tensor 'a': expected dtype, shape and data_offsets");
  ExpectRefused(Framed("{\"a\\nb\u00e9\":3}"),
                "tensor 'a?b?"
                "?': expected dtype");
  ExpectRefused(Framed("{\"a\":{" + entry + "},\"a\":{" + entry + "}}", "1234"), "repeats 'a'");
  ExpectRefused(Framed("{\"a\":{\"dtype\":\"F32\"," + entry + "}}", "1234"), "repeats 'dtype'");
  ExpectRefused(Framed("{\"a\":{" + entry + ",\"x\":1}}", "1234"), "expected dtype");
  ExpectRefused(Framed("{\"\":{" + entry + "}}", "1234"), "a name has");
  ExpectRefused(Framed("{\"" + std::string(1025, 'a') + "\":{" + entry + "}}", "1234"), "a name");
  ExpectRefused(Framed("{\"a\":{" + entry + "},\"b\":{" + entry + "}}", "1234"), "follow");
  ExpectRefused(Framed("{\"__metadata__\":{\"a\":1}}"), "not a text");
  ExpectRefused(Framed("{\"__metadata__\":[]}"), "not an object");

  const auto tensor = [](const char* dtype, const char* shape, const char* offsets) {
    return Framed(std::string(R"({"a":{"dtype":")") + dtype + R"(","shape":)" + shape +
                      R"(,"data_offsets":)" + offsets + "}}",
                  "1234");
  };
  ExpectRefused(tensor("F64", "[1]", "[0,4]"), "dtype");
  ExpectRefused(tensor("F32", "[2]", "[0,4]"), "do not fit");
  ExpectRefused(tensor("F32", "1", "[0,4]"), "shape is not a list of at most 8 sizes");
  ExpectRefused(tensor("F32", "[281474976710657]", "[0,4]"), "out of range");
  ExpectRefused(tensor("F32", "[-1]", "[0,4]"), "out of range");
  ExpectRefused(tensor("F32", "[1.0]", "[0,4]"), "out of range");
  ExpectRefused(tensor("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), "at most 8");
  ExpectRefused(tensor("F32", "[4294967296,4294967296,4]", "[0,0]"), "do not fit");
  ExpectRefused(tensor("F32", "[18446744073709551616]", "[0,4]"), "out of range");
  ExpectRefused(tensor("F32", "[1]", "[4,0]"), "do not fit");
  ExpectRefused(tensor("F32", "[1]", "[4,8]"), "does not follow");
  ExpectRefused(tensor("F32", "[1]", "[0,4,4]"), "pair");
  ExpectRefused(tensor("F32", "[1]", "[-4,0]"), "pair");
  ExpectRefused(tensor("F32", "[1]", "[0,-4]"), "pair");
  ExpectRefused(tensor("F32", "[1]", "4"), "pair");
  ExpectRefused(tensor("U8", "[3]", "[0,3]"), "bytes follow");
  ExpectRefused(tensor("U8", "[5]", "[0,5]"), "after the file");
}

TEST_F(SafetensorsTest, RefusesToWriteWhatItCouldNotRead) {
  Safetensors file;
  file.tensors[""] = Tensor::OfFloats({1}, std::vector<float>{1});
  EXPECT_EQ(FormatSafetensors(file).status().code(), Code::kConfig);
  file.tensors.clear();
  file.tensors["a"] = {Tensor::Type::kFloat32, {2}, "1234"};
  EXPECT_EQ(FormatSafetensors(file).status().code(), Code::kConfig);
  const auto refused = [](const std::string& name, std::vector<int64_t> shape,
                          const std::string& bytes) {
    Safetensors other;
    other.tensors[name] = {Tensor::Type::kUint8, std::move(shape), bytes};
    const Status status = FormatSafetensors(other).status();
    return status.code() == Code::kConfig && status.message().ends_with("bytes that fit the shape");
  };
  EXPECT_FALSE(refused("a", {2, 1}, "12"));
  EXPECT_TRUE(refused(std::string(1025, 'a'), {2}, "12"));
  EXPECT_TRUE(refused("__metadata__", {2}, "12"));
  EXPECT_TRUE(refused("a", {1, 1, 1, 1, 1, 1, 1, 1, 2}, "12"));
  EXPECT_TRUE(refused("a", {-2}, "12"));
  EXPECT_TRUE(refused("a", {int64_t{1} << 40, int64_t{1} << 40}, "12"));
  file.tensors.clear();
  file.metadata["long"] = std::string(1 << 20, 'x');
  EXPECT_EQ(FormatSafetensors(file).status().message(),
            "a safetensors header of 1048608 bytes, at most 1 MiB is read back");
}

TEST_F(SafetensorsTest, ManyTensorsAreRefusedBothWays) {
  Safetensors file;
  std::string header = "{";
  for (int i = 0; i < 65538; ++i) {
    file.tensors[std::to_string(i)] = {Tensor::Type::kUint8, {0}, ""};
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  }
  EXPECT_EQ(FormatSafetensors(file).status().message(),
            "more than 65536 tensors for one safetensors file");
  ExpectRefused(Framed(header + "}"), "not a safetensors file: more than 65536 tensors");
}

}  // namespace
}  // namespace samara::safetensors_test
