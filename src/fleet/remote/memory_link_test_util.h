// A transport in memory for tests: one thread carries messages both ways between a hub and a peer,
// whole or cut into pieces, and may cut the link. It keeps the promises of grpc/.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/mutex.h"
#include "core/thread.h"
#include "fleet/remote/actor.h"
#include "fleet/remote/hub.h"

namespace samara {

// Runs tasks one after the other.
class NetworkThread {
 public:
  NetworkThread() : thread_("network", [this] { Work(); }) {}
  ~NetworkThread() {
    Post(nullptr);
    thread_.Join();
  }
  void Post(std::function<void()> task) {
    MutexLock lock(mu_);
    tasks_.push_back(std::move(task));
    changed_.NotifyOne();
  }

 private:
  void Work() {
    for (;;) {
      MutexLock lock(mu_);
      changed_.Wait(mu_, [this]() REQUIRES(mu_) { return !tasks_.empty(); });
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.Unlock();
      if (!task) return;
      task();
    }
  }
  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_;
  Thread thread_;
};

// Received bytes, cut into pieces of `size` bytes.
inline std::vector<std::span<const std::byte>> Cut(const std::string& message, size_t size) {
  std::vector<std::span<const std::byte>> pieces;
  const auto bytes = std::as_bytes(std::span(message));
  for (size_t at = 0; at < bytes.size(); at += size)
    pieces.push_back(bytes.subspan(at, std::min(size, bytes.size() - at)));
  return pieces;
}

// One stream between a hub and a RemoteActor.
class MemoryLink : public std::enable_shared_from_this<MemoryLink> {
 public:
  MemoryLink(RemoteHub& hub, RemoteActor& actor, NetworkThread& network, size_t piece)
      : hub_(hub), actor_(actor), network_(network), piece_(piece) {}

  void Connect(const std::string& authorization = {}) {
    const auto self = shared_from_this();
    network_.Post([self, authorization] {
      self->session_ =
          self->hub_.Open(std::make_shared<Side>(self, false), "memory", authorization);
    });
    actor_.Open(std::make_shared<Side>(self, true));
  }
  void Break() {
    Post([this] { Close({RemoteCode::kUnavailable, "the link broke"}); });
  }

 private:
  // The stream of one side.
  class Side : public RemoteStream {
   public:
    Side(std::shared_ptr<MemoryLink> link, bool actor) : link_(std::move(link)), actor_(actor) {}
    void Send(Message head, Message body) override {
      std::string bytes = head->bytes;
      if (body != nullptr) bytes += body->bytes;
      link_->Post([link = link_.get(), actor = actor_, message = std::move(bytes)] {
        link->Carry(actor, message);
      });
    }
    void End(const RemoteEnd& end, bool) override {
      link_->Post([link = link_.get(), end] { link->Close(end); });
    }

   private:
    const std::shared_ptr<MemoryLink> link_;
    const bool actor_;
  };

  void Post(std::function<void()> task) {
    network_.Post([self = shared_from_this(), task = std::move(task)] { task(); });
  }
  void Carry(bool from_actor, const std::string& message) {
    if (closed_) return;
    const auto pieces = Cut(message, piece_);
    if (from_actor) {
      actor_.Sent();
      hub_.Receive(*session_, pieces);
    } else {
      hub_.Sent(*session_);
      actor_.Receive(pieces);
    }
  }
  void Close(const RemoteEnd& end) {
    if (closed_) return;
    closed_ = true;
    // lets go of it too: a session holds its stream, and the stream this link
    if (const auto session = std::move(session_)) hub_.Close(*session);
    actor_.Close(end);
  }

  RemoteHub& hub_;
  RemoteActor& actor_;
  NetworkThread& network_;
  const size_t piece_;
  // touched by the network's thread
  std::shared_ptr<RemoteHub::Session> session_;
  bool closed_ = false;
};

}  // namespace samara
