// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/sha256.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace samara {
namespace {

struct Vector {
  std::string text;
  const char* digest;
};

// FIPS 180-4's examples (csrc.nist.gov: SHA256.pdf, SHA2_Additional.pdf)
TEST(Sha256Test, MatchesThePublishedVectors) {
  const Vector vectors[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmn"
       "o"
       "pqrsmnopqrstnopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
      {std::string(1'000'000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const auto& [text, digest] : vectors) EXPECT_EQ(Sha256Hex(text), digest) << text.size();
}

// Python's hashlib, at the lengths where the padding starts another block
TEST(Sha256Test, PaddingFillsOneBlockOrTwo) {
  const Vector vectors[] = {
      {std::string(55, 'a'), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
      {std::string(56, 'a'), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
      {std::string(63, 'a'), "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
      {std::string(64, 'a'), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
      {std::string(65, 'a'), "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
      {std::string(119, 'a'), "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb"},
      {std::string(120, 'a'), "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c"},
  };
  for (const auto& [text, digest] : vectors) EXPECT_EQ(Sha256Hex(text), digest) << text.size();
}

TEST(Sha256Test, InPiecesIsTheSameAsWhole) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(7 * i);
  const std::string whole = Sha256Hex(text);
  for (size_t first = 0; first <= text.size(); ++first) {
    for (const size_t step : {1, 63, 64, 65, 200}) {
      Sha256 hash;
      hash.Update(std::string_view(text).substr(0, first));
      for (size_t at = first; at < text.size(); at += step)
        hash.Update(std::string_view(text).substr(at, step));
      ASSERT_EQ(Hex(hash.Finish()), whole) << first << " then " << step;
    }
  }
}

// Blocks several at a call, with the state going on, from addresses that are not aligned.
TEST(Sha256Test, TheProcessorsInstructionsGiveTheDigestsOfTheFormulas) {
  if (!HasShaInstructions()) GTEST_SKIP() << "the processor has no instructions for it";
  std::string text;
  uint32_t value = 1;
  for (int i = 0; i < 2000; ++i)
    text += static_cast<char>((value = 1664525 * value + 1013904223) >> 24);
  for (size_t size = 0; size < text.size(); size += 37) {
    const std::string_view part = std::string_view(text).substr(size % 7, size);
    const auto hash = [&](bool instructions) {
      return Hex(Sha256(instructions).Update(part).Update(text).Finish());
    };
    ASSERT_EQ(hash(true), hash(false)) << size;
  }
}

// FIPS 180-4's example
TEST(Sha256Test, TheFormulasGiveThePublishedVectorWhereThereAreInstructionsToo) {
  EXPECT_EQ(Hex(Sha256(false).Update("abc").Finish()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, NumbersAreLittleEndianBytes) {
  EXPECT_EQ(Hex(Sha256().UpdateU32(0x64636261).Finish()), Sha256Hex("abcd"));
  EXPECT_EQ(Hex(Sha256().UpdateU64(0x6867666564636261).Finish()), Sha256Hex("abcdefgh"));
}

}  // namespace
}  // namespace samara
