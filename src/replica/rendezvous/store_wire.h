// Protocol between a store's server and its clients. A connection begins with
//   server: Greeting      magic and a nonce
//   client: Introduction  a nonce, and the proof of both under the secret
//   server: Digest        its own proof, or zeros: refused, and the connection is closed
// and goes on with requests and replies, one at a time, each a size of 4 bytes and a record.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/bytes.h"
#include "replica/rendezvous/secret.h"

namespace samara {

using StoreNonce = std::array<char, 32>;

struct StoreGreeting {
  std::array<char, 8> magic = {'S', 'A', 'M', 'S', 'T', 'O', 'R', '1'};
  StoreNonce nonce{};
};
struct StoreIntroduction {
  StoreNonce nonce{};
  Digest proof{};
};

inline Digest StoreProof(const std::string& secret, std::string_view side, const StoreNonce& server,
                         const StoreNonce& client) {
  return Proof(secret, std::string("store ").append(side),
               std::string(server.data(), server.size()).append(client.data(), client.size()));
}

enum class StoreOperation : uint8_t { kSet = 1, kGet = 2, kAdd = 3, kDelete = 4 };

// A request: operation, key, value (of kSet), number (of kAdd: the amount, of kGet: milliseconds).
struct StoreRequest {
  StoreOperation operation = StoreOperation::kGet;
  std::string key, value;
  int64_t number = 0;
};
// A reply: the status's code and, when it is ok, the value or the sum in decimal, else its words.
struct StoreReply {
  int32_t code = 0;
  std::string text;
};

constexpr uint32_t kStoreRecordMax = uint32_t{1} << 30;

inline std::string Sized(const std::string& record) {
  return ByteWriter().Put(static_cast<uint32_t>(record.size())).Take() + record;
}
inline std::string Encode(const StoreRequest& request) {
  ByteWriter out;
  out.Put(request.operation).PutBytes(request.key).PutBytes(request.value).Put(request.number);
  return Sized(out.Take());
}
inline std::string Encode(const StoreReply& reply) {
  return Sized(ByteWriter().Put(reply.code).PutBytes(reply.text).Take());
}
// False: no record of this kind.
inline bool Decode(std::string_view record, StoreRequest& request) {
  ByteReader in(record);
  request.operation = in.Get<StoreOperation>();
  request.key = in.GetBytes();
  request.value = in.GetBytes();
  request.number = in.Get<int64_t>();
  return in.AtEnd();
}
inline bool Decode(std::string_view record, StoreReply& reply) {
  ByteReader in(record);
  reply.code = in.Get<int32_t>();
  reply.text = in.GetBytes();
  return in.AtEnd();
}

}  // namespace samara
