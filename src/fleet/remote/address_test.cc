#include "fleet/remote/address.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace samara {
namespace {

using AddressKind = RemoteAddress::Kind;

TEST(AddressTest, KindsAndTexts) {
  struct Case {
    const char *given, *text;
    AddressKind kind;
  };
  const Case cases[] = {
      {"127.0.0.1:7777", "127.0.0.1:7777", AddressKind::kLoopback},
      {"127.9.9.9:0", "127.9.9.9:0", AddressKind::kLoopback},
      {"localhost:1", "localhost:1", AddressKind::kLoopback},
      {"[::1]:65535", "[::1]:65535", AddressKind::kLoopback},
      {"0.0.0.0:80", "0.0.0.0:80", AddressKind::kRoutable},
      {"[::]:80", "[::]:80", AddressKind::kRoutable},
      {"[fe80::1]:80", "[fe80::1]:80", AddressKind::kRoutable},
      {"learner.example:80", "learner.example:80", AddressKind::kRoutable},
      {"unix:/a/b/../socket", "unix:/a/socket", AddressKind::kUnix},
      {"unix:///a/socket", "unix:/a/socket", AddressKind::kUnix},
  };
  for (const Case& c : cases) {
    const auto address = ParseAddress(c.given);
    ASSERT_TRUE(address.ok()) << address.status().message();
    EXPECT_EQ(address->kind, c.kind) << c.given;
    EXPECT_EQ(address->text(), c.text);
  }
}

TEST(AddressTest, OtherTextsAreRefused) {
  for (const std::string text :
       {"",         "7777",      ":7777",   "host",          "host:",
        "host:x",   "host:7x",   "host:-1", "host:65536",    "host:99999999999",
        "::1:7777", "[::1:7777", "[]:7777", "a b:7777",      "a/b:7777",
        "a\tb:7",   "unix:",     "unix:/",  "unix:/folder/", "unix://"}) {
    const Status status = ParseAddress(text).status();
    EXPECT_EQ(status.code(), Code::kConfig) << text;
    EXPECT_TRUE(
        status.message().ends_with("': expected unix:/folder/socket, HOST:PORT or "
                                   "[IPV6]:PORT, such as 127.0.0.1:7777"))
        << status.message();
  }
  const std::string longest = "unix:/" + std::string(106, 'a'), longer = longest + "a";
  EXPECT_TRUE(ParseAddress(longest).ok());
  EXPECT_EQ(ParseAddress(longer).status().message(),
            "address '" + longer +
                "': a socket's path has at most 107 characters: choose a shorter folder");
}

class TokenTest : public testing::Test {
 protected:
  ~TokenTest() override { std::filesystem::remove(file_); }
  Result<std::string> Read(const std::string& bytes, mode_t mode = 0600) const {
    std::filesystem::remove(file_);
    ThrowIfError(WriteNewFile(file_, bytes));
    EXPECT_EQ(::chmod(file_.c_str(), mode), 0);
    return ReadToken(file_);
  }
  const Path file_ = Path(testing::TempDir()) / ("token." + std::to_string(::getpid()));
};

TEST_F(TokenTest, IsOneLineOfPrintableCharacters) {
  const std::string token(32, 'a'), longest(1024, '~');
  EXPECT_EQ(Read(token).ValueOrThrow(), token);
  EXPECT_EQ(Read(token + "\r\n\n").ValueOrThrow(), token);
  EXPECT_EQ(Read(longest).ValueOrThrow(), longest);
  for (const std::string& bytes :
       {std::string(), std::string("\n\n"), std::string(31, 'a'), longest + "~", token + " a",
        token + "\n" + token, token + "\x7f", token + "\xc3\xa9", token + std::string(1, '\0')}) {
    const Status status = Read(bytes).status();
    EXPECT_EQ(status.code(), Code::kBadData) << bytes;
    EXPECT_EQ(status.message(), file_.string() +
                                    ": expected one token of 32 to 1024 printable characters: "
                                    "`samara token FILE` makes one");
  }
  EXPECT_FALSE(Read(std::string(5000, 'a')).ok());
}

TEST_F(TokenTest, IsReadableByItsOwnerAlone) {
  for (const mode_t mode : {0640, 0604, 0620}) {
    const Status status = Read(std::string(32, 'a'), mode).status();
    EXPECT_EQ(status.code(), Code::kNotPermitted);
    EXPECT_EQ(status.message(),
              file_.string() + ": others may read this token: chmod 600 " + file_.string());
  }
  std::filesystem::remove(file_);
  EXPECT_EQ(ReadToken(file_).status().code(), Code::kNoInput);
  ASSERT_TRUE(WriteToken(file_).ok());
  EXPECT_EQ(ReadToken(file_)->size(), 64U);
}

}  // namespace
}  // namespace samara
