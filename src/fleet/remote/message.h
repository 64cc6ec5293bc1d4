// The bytes of messages on their way out. Their memory goes back to the pool that they came from,
// so that messages allocate nothing in the long run.
//
// Thread safety: a pool takes messages back from any thread, one thread at a time takes them out; a
// message belongs to one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>

namespace samara {

class MessagePool;

struct MessageBytes {
  std::string bytes;
  std::shared_ptr<MessagePool> home;  // null: of no pool
  std::atomic<bool> taken{false};     // of those of a pool
};
struct ReturnMessage {
  void operator()(MessageBytes* message) const;
};
// Null: no bytes.
using Message = std::unique_ptr<MessageBytes, ReturnMessage>;

// Buffers of one stream, for a message under construction, one with the transport, and some whose
// bytes the transport still holds: both parts of each.
class MessagePool : public std::enable_shared_from_this<MessagePool> {
 public:
  // Empty, with the room that it had; of no pool when all are on their way.
  Message Take() {
    for (MessageBytes& message : messages_) {
      // acquire: pairs with the release in ReturnMessage
      if (message.taken.load(std::memory_order_acquire)) continue;
      message.taken.store(true, std::memory_order_relaxed);
      message.home = shared_from_this();
      return Message(&message);
    }
    return Message(new MessageBytes);
  }

 private:
  std::array<MessageBytes, 8> messages_;
};

inline void ReturnMessage::operator()(MessageBytes* message) const {
  if (message->home == nullptr) return delete message;
  // the pool may die with its last message
  const auto home = std::move(message->home);
  message->bytes.clear();
  message->taken.store(false, std::memory_order_release);
}

// Makes a message of a text that is sent once.
inline Message MessageOf(std::string bytes) {
  Message message(new MessageBytes);
  message->bytes = std::move(bytes);
  return message;
}

}  // namespace samara
