#include "replica/rendezvous/secret.h"

#include <sys/random.h>

#include "core/check.h"

namespace samara {
namespace {

constexpr size_t kBlock = 64;  // of SHA-256

}  // namespace

Result<std::string> RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  if (::getrandom(bytes.data(), size, 0) != static_cast<ssize_t>(size))
    return Status(Code::kIoError, "the kernel has no random bytes");
  return bytes;
}

Result<std::string> MakeSecret() {
  ASSIGN_OR_RETURN(const std::string bytes, RandomBytes(std::tuple_size_v<Digest>));
  Digest digest;
  bytes.copy(reinterpret_cast<char*>(digest.data()), digest.size());
  return Hex(digest);
}

Digest Proof(const std::string& secret, std::string_view purpose, std::string_view message) {
  std::string key = secret;
  if (key.size() > kBlock) key = AsText(Sha256().Update(secret).Finish());
  key.resize(kBlock, '\0');
  std::string inner = key, outer = key;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  Sha256 hash;
  hash.Update(inner).Update(purpose).Update(std::string_view("\0", 1)).Update(message);
  return Sha256().Update(outer).Update(AsText(hash.Finish())).Finish();
}

bool SameBytes(std::string_view a, std::string_view b) {
  CHECK(a.size() == b.size());
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

}  // namespace samara
