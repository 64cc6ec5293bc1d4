#include "replica/rendezvous/secret.h"

#include <gtest/gtest.h>

namespace samara::secret_test {
namespace {

TEST(SecretTest, EverySecretIsAnother) {
  const std::string one = *MakeSecret();
  EXPECT_EQ(one.size(), 64u);
  EXPECT_NE(one, *MakeSecret());
}

// Computed by Python's hmac.new(secret, b"store\0" + message, "sha256").
TEST(SecretTest, AProofIsHmacSha256) {
  EXPECT_EQ(Hex(Proof("key", "store", "The quick brown fox")),
            "63732ff994d68a23b6d0957b047743295178a3a779664da1c6236bf9086d6d59");
  EXPECT_EQ(Hex(Proof(std::string(100, 'k'), "store", "")),
            "bbc23f8c8f9c1198dd2586c46ead907b8c7581d548a8086d65c0904dafd1f8ea");
  EXPECT_EQ(Hex(Proof("", "store", "")),
            "575d58976559da6a337daa86fdde205dfd2ab8a2cf0f396fd64bd37c1842fee5");
}

TEST(SecretTest, AProofDependsOnSecretPurposeAndMessage) {
  const std::string proof = Hex(Proof("a", "b", "c"));
  EXPECT_NE(proof, Hex(Proof("A", "b", "c")));
  EXPECT_NE(proof, Hex(Proof("a", "B", "c")));
  EXPECT_NE(proof, Hex(Proof("a", "b", "C")));
  EXPECT_TRUE(SameBytes("abc", "abc"));
  EXPECT_FALSE(SameBytes("abc", "abd"));
}

}  // namespace
}  // namespace samara::secret_test
