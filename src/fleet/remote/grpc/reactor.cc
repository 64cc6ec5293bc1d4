#include "fleet/remote/grpc/reactor.h"

#include <string>
#include <utility>

#include "core/mutex.h"
#include "fleet/remote/grpc/settings.h"

namespace samara {
namespace {

class Reactor;
thread_local bool at_work = false;  // this thread, in a callback

}  // namespace

// The hub's handle of a reactor; outlives it. The reactor's life ends with OnDone, and until then
// gRPC wants exactly one Finish and at most one write at a time. Invariant: from Send to Written
// the reactor lives, since Finish waits for the write.
class ServerStream : public RemoteStream, public std::enable_shared_from_this<ServerStream> {
 public:
  ServerStream(Reactor* reactor, Outbox& outbox) : outbox_(outbox), reactor_(reactor) {}
  void Send(Message head, Message body) override;
  void End(const RemoteEnd& end, bool now) override;

  void Write();                             // what Send has left
  bool Written(bool ok);                    // the write is done; true when the hub may be told
  void Finish(const grpc::Status& status);  // now, or after the write
  void Forget();                            // OnDone
  // Reads once the next write is done: with the write goes the flow control's update for what was
  // read before, which gRPC sends by itself for a read that comes first. At once if that write was
  // done since `sends` messages had been sent.
  void ReadAfterWrite(uint64_t sends);
  uint64_t sends();

 private:
  Outbox& outbox_;
  Mutex mu_;
  // guarded by mu_
  Reactor* reactor_ GUARDED_BY(mu_);
  uint64_t sends_ GUARDED_BY(mu_) = 0;
  grpc::ByteBuffer message_ GUARDED_BY(mu_);  // being written
  bool writing_ GUARDED_BY(mu_) = false, finished_ GUARDED_BY(mu_) = false,
                finish_wanted_ GUARDED_BY(mu_) = false, read_wanted_ GUARDED_BY(mu_) = false;
  grpc::Status status_ GUARDED_BY(mu_);
};

namespace {

class Reactor : public grpc::ServerGenericBidiReactor {
 public:
  Reactor(RemoteHub& hub, Gate& gate, Outbox& outbox, grpc::GenericCallbackServerContext* context)
      : hub_(hub),
        gate_(gate),
        outbox_(outbox),
        context_(context),
        stream_(std::make_shared<ServerStream>(this, outbox)) {
    std::string authorization;
    const auto& metadata = context->client_metadata();
    if (const auto found = metadata.find("authorization"); found != metadata.end())
      authorization.assign(found->second.data(), found->second.size());
    session_ = hub_.Open(stream_, context->peer(), authorization);
    Read();
  }
  void OnReadDone(bool ok) override {
    using Next = RemoteHub::Next;
    const Outbox::AtWork guard(outbox_);
    const uint64_t sends = stream_->sends();
    const Next next = ok ? hub_.Receive(*session_, pieces_.Read(received_)) : Next::kNothing;
    // the first message is the Hello
    if (!std::exchange(greeted_, true) && next != Next::kNothing) gate_.Admit(context_->peer());
    switch (next) {
      case Next::kNothing:
        // the actor is gone, or was refused (then this Finish is not the first)
        return stream_->Finish(grpc::Status::OK);
      case Next::kRead:
        return Read();
      case Next::kReadAfterSend:
        return stream_->ReadAfterWrite(sends);
    }
  }
  void OnWriteDone(bool ok) override {
    const Outbox::AtWork guard(outbox_);
    if (stream_->Written(ok)) hub_.Sent(*session_);
  }
  void OnCancel() override { stream_->Finish(grpc::Status::CANCELLED); }
  void OnDone() override {
    stream_->Forget();
    hub_.Close(*session_);
    delete this;
  }
  void Read() { StartRead(&received_); }
  void Cancel() { context_->TryCancel(); }

 private:
  RemoteHub& hub_;
  Gate& gate_;
  Outbox& outbox_;
  grpc::GenericCallbackServerContext* const context_;
  bool greeted_ = false;
  const std::shared_ptr<ServerStream> stream_;
  std::shared_ptr<RemoteHub::Session> session_;
  grpc::ByteBuffer received_;
  ReceivedPieces pieces_;
};

}  // namespace

void ServerStream::Send(Message head, Message body) {
  {
    MutexLock lock(mu_);
    if (reactor_ == nullptr || finished_ || finish_wanted_) return;
    writing_ = true;
    ++sends_;
    message_ = ToBuffer(std::move(head), std::move(body));
  }
  if (at_work)
    Write();
  else
    outbox_.Post(shared_from_this());
}

void ServerStream::Write() {
  MutexLock lock(mu_);
  // no callback of a stream runs inside: gRPC hands them to its own threads
  if (reactor_ != nullptr) reactor_->StartWrite(&message_);
}

bool ServerStream::Written(bool ok) {
  MutexLock lock(mu_);
  writing_ = false;
  if (reactor_ == nullptr) return false;
  if (std::exchange(read_wanted_, false)) reactor_->Read();
  if (finish_wanted_ && !finished_) {
    finished_ = true;
    reactor_->Finish(status_);
  }
  return ok && !finished_;
}

uint64_t ServerStream::sends() {
  MutexLock lock(mu_);
  return sends_;
}

void ServerStream::ReadAfterWrite(uint64_t sends) {
  MutexLock lock(mu_);
  read_wanted_ = writing_ || sends_ == sends;
  if (!read_wanted_ && reactor_ != nullptr) reactor_->Read();
}

void ServerStream::Finish(const grpc::Status& status) {
  MutexLock lock(mu_);
  if (reactor_ == nullptr || finished_ || finish_wanted_) return;
  status_ = status;
  if (writing_) {
    finish_wanted_ = true;
  } else {
    finished_ = true;
    reactor_->Finish(status_);
  }
}

void ServerStream::End(const RemoteEnd& end, bool now) {
  Finish(ToGrpc(end));
  MutexLock lock(mu_);
  // a peer that does not read would hold up the write for ever
  if (now && reactor_ != nullptr) reactor_->Cancel();
}

void ServerStream::Forget() {
  MutexLock lock(mu_);
  reactor_ = nullptr;
}

// --- the outbox

std::shared_ptr<ServerStream> Outbox::Take() {
  if (first_ == streams_.size()) {
    streams_.clear();
    first_ = 0;
    return nullptr;
  }
  return std::move(streams_[first_++]);
}

Outbox::AtWork::AtWork(Outbox& outbox) : outbox_(outbox) {
  at_work = true;
  const MutexLock lock(outbox_.mu_);
  ++outbox_.at_work_;
}

Outbox::AtWork::~AtWork() {
  MutexLock lock(outbox_.mu_);
  while (const std::shared_ptr<ServerStream> stream = outbox_.Take()) {
    lock.Unlock();
    stream->Write();
    lock.Lock();
  }
  --outbox_.at_work_;
  at_work = false;
}

void Outbox::Post(std::shared_ptr<ServerStream> stream) {
  {
    const MutexLock lock(mu_);
    if (at_work_ > 0) {
      if (streams_.size() == streams_.capacity()) {
        streams_.erase(streams_.begin(), streams_.begin() + static_cast<ptrdiff_t>(first_));
        first_ = 0;
      }
      streams_.push_back(std::move(stream));
      return;
    }
  }
  stream->Write();
}

grpc::ServerGenericBidiReactor* MakeReactor(RemoteHub& hub, Gate& gate, Outbox& outbox,
                                            grpc::GenericCallbackServerContext* context) {
  return new Reactor(hub, gate, outbox, context);
}

}  // namespace samara
