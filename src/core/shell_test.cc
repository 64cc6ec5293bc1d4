// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/shell.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

namespace samara {
namespace {

TEST(ShellWordTest, AShellReadsTheTextAgain) {
  for (const std::string text : {"", "plain/word-1", "two words", "it's", "'", "a\nb", "$HOME `id`",
                                 R"({"name" = "it's \ here"})", "x?y=1&z=*", "~", "#", "!"}) {
    std::FILE* pipe = ::popen(("printf %s " + ShellWord(text)).c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::array<char, 100> read{};
    const size_t size = std::fread(read.data(), 1, read.size(), pipe);
    EXPECT_EQ(::pclose(pipe), 0);
    EXPECT_EQ(std::string(read.data(), size), text);
  }
  EXPECT_EQ(ShellWord("plain/word-1"), "plain/word-1");
  EXPECT_EQ(ShellWord("two words"), "'two words'");
}

}  // namespace
}  // namespace samara
