// A bare streaming echo over gRPC's callback API: what samara's own streams are measured against.
// Settings, credentials and connections are those of samara's streams; each message is copied once
// into gRPC's memory and once out of it, as an observation has to be; it is not passed to another
// thread.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>

#include "bench/peer.h"
#include "core/mutex.h"
#include "fleet/remote/address.h"
#include "fleet/remote/grpc/certificates.h"
#include "fleet/remote/grpc/settings.h"
#include "fleet/remote/wire.h"

namespace samara::bench {
namespace {

constexpr char kMethod[] = "/samara.bench.Echo/Play";

// Largest message that samara accepts for rows of so many bytes.
int MessageMax(size_t row_bytes) {
  const RemoteLayout layout(PayloadSpec(static_cast<uint32_t>(row_bytes)));
  return static_cast<int>(MessageBytesMax(layout) + kMessageSlackBytes);
}

grpc::ByteBuffer BufferOf(const std::vector<std::byte>& bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());  // copies
  return {&slice, 1};
}

void CopyOut(const Pieces& pieces, std::vector<std::byte>& out) {
  size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  out.resize(bytes);
  size_t at = 0;
  for (const auto& piece : pieces) {
    std::memcpy(out.data() + at, piece.data(), piece.size());
    at += piece.size();
  }
}

class Answer : public grpc::ServerGenericBidiReactor {
 public:
  Answer(std::atomic<uint64_t>& messages, size_t row_bytes, size_t reply_bytes)
      : messages_(messages), row_bytes_(row_bytes), reply_bytes_(reply_bytes) {
    StartRead(&in_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    CopyOut(pieces_.Read(in_), batch_);
    messages_.fetch_add(1, std::memory_order_relaxed);
    out_ = BufferOf(std::vector<std::byte>(batch_.size() / row_bytes_ * reply_bytes_));
    StartWrite(&out_);
  }
  void OnWriteDone(bool ok) override {
    if (ok)
      StartRead(&in_);
    else
      Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  std::atomic<uint64_t>& messages_;
  const size_t row_bytes_, reply_bytes_;
  grpc::ByteBuffer in_, out_;
  ReceivedPieces pieces_;
  std::vector<std::byte> batch_;
};

class Server : public EchoServer, public grpc::CallbackGenericService {
 public:
  Server(size_t row_bytes, size_t reply_bytes) : row_bytes_(row_bytes), reply_bytes_(reply_bytes) {}
  ~Server() override {
    // with a deadline in the past the streams are cut off
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }
  Status Start(const std::string& address,
               const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, credentials, &port);
    builder.RegisterCallbackGenericService(this);
    builder.SetMaxReceiveMessageSize(-1);
    for (const auto& [name, value] : StreamSettings(MessageMax(row_bytes_)))
      builder.AddChannelArgument(name, value);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return {Code::kCannotCreate, address + ": cannot listen here"};
    address_ = address;
    if (const size_t colon = address.rfind(":0"); colon == address.size() - 2)
      address_ = address.substr(0, colon + 1) + std::to_string(port);
    return Status::Ok();
  }
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Answer(messages_, row_bytes_, reply_bytes_);
  }
  const std::string& address() const override { return address_; }
  uint64_t messages() const override { return messages_.load(std::memory_order_relaxed); }

 private:
  const size_t row_bytes_, reply_bytes_;
  std::string address_;
  std::atomic<uint64_t> messages_{0};
  std::unique_ptr<grpc::Server> server_;
};

// Sends, and waits for the answer, for ever.
class Question : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Question(const std::shared_ptr<grpc::Channel>& channel, std::vector<std::byte> message)
      : stub_(channel), message_(std::move(message)) {
    stub_.PrepareBidiStreamingCall(&context_, kMethod, {}, this);
    Send();
    StartRead(&in_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    CopyOut(pieces_.Read(in_), answer_);
    Half();
  }
  void OnWriteDone(bool ok) override {
    if (ok) Half();
  }
  void OnDone(const grpc::Status&) override {
    MutexLock lock(mu_);
    done_ = true;
    changed_.NotifyAll();
  }
  void WaitUntilDone() {
    MutexLock lock(mu_);
    changed_.Wait(mu_, [this]() REQUIRES(mu_) { return done_; });
  }

 private:
  // The answer may be told before the end of the write that it answers.
  void Half() {
    if (halves_.fetch_sub(1) > 1) return;
    halves_ = 2;
    Send();
    StartRead(&in_);
  }
  void Send() {
    out_ = BufferOf(message_);
    StartWrite(&out_);
  }
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  const std::vector<std::byte> message_;
  std::vector<std::byte> answer_;
  std::atomic<int> halves_{2};
  grpc::ByteBuffer in_, out_;
  ReceivedPieces pieces_;
  Mutex mu_;
  CondVar changed_;
  bool done_ GUARDED_BY(mu_) = false;
};

}  // namespace

Result<std::unique_ptr<EchoServer>> EchoServer::Listen(const std::string& address,
                                                       const Path& certificate, const Path& key,
                                                       size_t row_bytes, size_t reply_bytes) {
  QuietGrpc();
  auto credentials = grpc::InsecureServerCredentials();
  if (!certificate.empty()) {
    ASSIGN_OR_RETURN(const KeyPair pair, ReadKeyPair(certificate, key));
    grpc::SslServerCredentialsOptions ssl;
    ssl.pem_key_cert_pairs.push_back({pair.key, pair.certificate});
    credentials = grpc::SslServerCredentials(ssl);
  }
  auto server = std::make_unique<Server>(row_bytes, reply_bytes);
  RETURN_IF_ERROR(server->Start(address, credentials));
  return std::unique_ptr<EchoServer>(std::move(server));
}

Status RunEchoes(const PeerTask& task) {
  QuietGrpc();
  auto credentials = grpc::InsecureChannelCredentials();
  if (!task.ca.empty()) {
    grpc::SslCredentialsOptions ssl;
    ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadAuthority(task.ca));
    credentials = grpc::SslCredentials(ssl);
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection per stream
  for (const auto& [name, value] : StreamSettings(MessageMax(task.payload)))
    arguments.SetInt(name, value);
  arguments.SetMaxReceiveMessageSize(-1);
  std::vector<std::unique_ptr<Question>> streams;
  for (uint32_t s = 0; s < task.streams; ++s) {
    streams.push_back(std::make_unique<Question>(
        grpc::CreateCustomChannel(task.address, credentials, arguments),
        std::vector<std::byte>(size_t{task.payload} * task.rows, std::byte{7})));
  }
  for (const auto& stream : streams) stream->WaitUntilDone();
  return Status::Ok();
}

}  // namespace samara::bench
