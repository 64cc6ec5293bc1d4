// The actor's end: one stream after another to the learner process, over RemoteActor.
#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <random>

#include "core/clock.h"
#include "core/log.h"
#include "core/mutex.h"
#include "fleet/remote/actor.h"
#include "fleet/remote/address.h"
#include "fleet/remote/grpc/certificates.h"
#include "fleet/remote/grpc/settings.h"
#include "fleet/remote/remote.h"

namespace samara {
namespace {

// The stream and its reactor in one: its waiter keeps it until OnDone.
class ClientStream : public RemoteStream,
                     public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  ClientStream(RemoteActor& actor, grpc::GenericStub& stub, const std::string& token)
      : actor_(actor) {
    if (!token.empty()) context_.AddMetadata("authorization", "Bearer " + token);
    stub.PrepareBidiStreamingCall(&context_, kRemoteMethod, {}, this);
  }
  void Start() {
    AddHold();  // for writes of other threads; removed once no more of them start
    StartRead(&in_);
    StartCall();
  }

  void Send(Message head, Message body) override {
    MutexLock lock(mu_);
    if (ended_) return;
    out_ = ToBuffer(std::move(head), std::move(body));
    StartWrite(&out_);
  }
  void End(const RemoteEnd&, bool) override {
    if (Release()) context_.TryCancel();
  }

  void OnReadDone(bool ok) override {
    if (!ok)
      Release();  // the status is on its way
    else if (actor_.Receive(pieces_.Read(in_)))
      StartRead(&in_);
  }
  void OnWriteDone(bool ok) override {
    if (ok)
      actor_.Sent();
    else
      Release();
  }
  void OnDone(const grpc::Status& status) override {
    // the owner may destroy this as soon as it knows
    actor_.Close(FromGrpc(status));
    MutexLock lock(mu_);
    done_ = true;
    changed_.NotifyAll();
  }
  void WaitUntilDone() {
    MutexLock lock(mu_);
    changed_.Wait(mu_, [this]() REQUIRES(mu_) { return done_; });
  }

 private:
  // No more writes start; false when that was known.
  bool Release() {
    {
      MutexLock lock(mu_);
      if (std::exchange(ended_, true)) return false;
    }
    RemoveHold();
    return true;
  }

  RemoteActor& actor_;
  grpc::ClientContext context_;
  grpc::ByteBuffer in_;  // the pending read's
  ReceivedPieces pieces_;
  Mutex mu_;
  CondVar changed_;
  // guarded by mu_
  grpc::ByteBuffer out_ GUARDED_BY(mu_);
  bool ended_ GUARDED_BY(mu_) = false, done_ GUARDED_BY(mu_) = false;
};

Result<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(const RemoteActorOptions& options,
                                                                  const RemoteAddress& address) {
  if (options.certificate.empty() != options.key.empty())
    return Status(Code::kConfig, "--certificate and --key: expected both or neither");
  if (options.ca.empty()) {
    if (!options.certificate.empty()) return Status(Code::kConfig, "--certificate: needs --ca");
    if (!options.token_file.empty() && address.kind == RemoteAddress::Kind::kRoutable) {
      return Status(Code::kNotPermitted,
                    address.text() +
                        ": a token must not cross a network in the clear: give --ca, and "
                        "--certificate and --key (`samara certificates`)");
    }
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions ssl;
  ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadAuthority(options.ca));
  if (!options.certificate.empty()) {
    ASSIGN_OR_RETURN(const KeyPair mine, ReadKeyPair(options.certificate, options.key));
    ssl.pem_cert_chain = mine.certificate;
    ssl.pem_private_key = mine.key;
  }
  return grpc::SslCredentials(ssl);
}

grpc::ChannelArguments ChannelSettings(const RemoteLayout& layout) {
  grpc::ChannelArguments arguments;
  const int message_max = static_cast<int>(MessageBytesMax(layout) + kMessageSlackBytes);
  arguments.SetMaxReceiveMessageSize(message_max);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  for (const auto& [name, value] : StreamSettings(message_max)) arguments.SetInt(name, value);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // gRPC's name for the time that an attempt may take: when thousands connect at once, the learner
  // process needs seconds, and an actor that gives up earlier makes it start again
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kHandshakeMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 10'000);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetServiceConfigJSON("{}");
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  return arguments;
}

// Converts the end of a stream to a status for the actor: ok when it should try again.
Status Verdict(const RemoteActor::Outcome& outcome) {
  const std::string why = "the learner process refused this actor: " + outcome.end.message;
  switch (outcome.end.code) {
    case RemoteCode::kUnauthenticated:
    case RemoteCode::kPermissionDenied:
      return {Code::kNotPermitted, why};
    case RemoteCode::kInvalidArgument:
    case RemoteCode::kFailedPrecondition:
      return {Code::kConfig, why};
    default:
      return {};
  }
}

// Returns advice for a user whose actor cannot connect, from the last message of gRPC or the
// learner process.
std::string Advice(const std::string& said, const RemoteActorOptions& options,
                   const RemoteAddress& address) {
  const auto has = [&](std::string_view words) { return said.find(words) != said.npos; };
  if (has("wrong version number")) return "it speaks without TLS: leave out --ca";
  if (has("certificate verify failed"))
    return "its certificate is not valid today, or not signed by --ca";
  if (has("not in peer certificate"))
    return "its certificate is for other names: `samara certificates --host NAME` makes one";
  if (has("try later")) return "give it more slots or start fewer actors";
  const std::string running = "is `samara train --listen` running there";
  if (!has("Socket closed")) return running + "?";
  // this end's half of a handshake is done before the other end has looked at its certificate
  if (!options.certificate.empty())
    return "it refuses this certificate: expected one for actors that its --client-ca has signed "
           "(`samara certificates`), valid today by its clock";
  if (!options.ca.empty())
    return "it asks actors for a certificate: give --certificate actor.pem and --key actor.key "
           "(`samara certificates`)";
  const bool local = address.kind == RemoteAddress::Kind::kLoopback;
  return running + ", without TLS" + (local ? " and by this user" : "") + "? if with it: --ca";
}

bool Stopped(const RemoteActorOptions& options) { return options.stop && options.stop(); }

// Waits between attempts: 0.1 s, doubled up to 10 s, each 50 % more or less; shorter steps so that
// a stop is seen.
class Backoff {
 public:
  void Reset() { seconds_ = kFirst; }
  void Sleep(const RemoteActorOptions& options) {
    std::uniform_real_distribution<double> jitter(0.5, 1.5);
    const SteadyTime start = Now();
    const double wait = seconds_ * jitter(random_);
    while (!Stopped(options) && SecondsSince(start) < wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    seconds_ = std::min(2 * seconds_, kLast);
  }

 private:
  static constexpr double kFirst = 0.1, kLast = 10;
  double seconds_ = kFirst;
  std::minstd_rand random_{std::random_device()()};
};

}  // namespace

Result<RemoteActorResult> RunRemoteActor(Fleet& fleet, const RemoteActorOptions& options) {
  QuietGrpc();
  ASSIGN_OR_RETURN(const RemoteAddress address, ParseAddress(options.address));
  std::string token;
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(token, ReadToken(options.token_file));
  }
  ASSIGN_OR_RETURN(const auto credentials, MakeCredentials(options, address));
  const RemoteLayout layout(fleet.spec());
  RemoteActor actor(fleet);
  RemoteActorResult result;
  Backoff backoff;
  SteadyTime since = Now();  // without the learner process
  std::string last = "no answer";
  while (!Stopped(options)) {
    // a new channel each time: one that failed would wait by its own rules
    const auto channel =
        grpc::CreateCustomChannel(address.text(), credentials, ChannelSettings(layout));
    grpc::GenericStub stub(channel);
    const auto stream = std::make_shared<ClientStream>(actor, stub, token);
    actor.Open(stream);  // first: from Start on the stream may end at any moment
    stream->Start();
    const RemoteActor::Outcome outcome = actor.Pump(options.stop);
    stream->End({}, true);
    stream->WaitUntilDone();
    result.steps = actor.steps();
    // a learner process ends a stream well only after its shutdown notice, which may be lost when
    // both end at once
    if (outcome.shutdown || outcome.end.code == RemoteCode::kOk) {
      ++result.connections;
      return result;
    }
    RETURN_IF_ERROR(outcome.failure);
    RETURN_IF_ERROR(Verdict(outcome));
    if (outcome.welcomed) {
      ++result.connections;
      backoff.Reset();
      since = Now();
      if (!Stopped(options))
        LogWarning("the learner process closed the connection (" + outcome.end.message +
                   "): reconnecting");
    }
    last = outcome.end.message.empty() ? last : outcome.end.message;
    const double timeout =
        result.connections > 0 ? options.reconnect_timeout : options.connect_timeout;
    if (SecondsSince(since) > timeout) {
      return Status(Code::kUnavailable,
                    fmt::format("{}: no learner process within {:g} s ({}): {}", address.text(),
                                timeout, last, Advice(last, options, address)));
    }
    backoff.Sleep(options);
  }
  return Status(Code::kTryAgain, "stopped");
}

}  // namespace samara
