// The learner process's end: a gRPC server whose one method is a stream of raw bytes, over
// RemoteHub.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <sys/resource.h>

#include <atomic>

#include "core/log.h"
#include "core/mutex.h"
#include "core/thread.h"
#include "fleet/remote/address.h"
#include "fleet/remote/grpc/certificates.h"
#include "fleet/remote/grpc/health.h"
#include "fleet/remote/grpc/reactor.h"
#include "fleet/remote/grpc/settings.h"
#include "fleet/remote/hub.h"
#include "fleet/remote/remote.h"

namespace samara {
namespace {

constexpr std::chrono::milliseconds kReloadAsked{250};

// Refuses other methods with UNIMPLEMENTED: another major version, or a stranger.
class Refusal : public grpc::ServerGenericBidiReactor {
 public:
  Refusal() {
    Finish({grpc::StatusCode::UNIMPLEMENTED,
            std::string("this learner process speaks ") + kRemoteMethod});
  }
  void OnDone() override { delete this; }
};

class Service : public grpc::CallbackGenericService {
 public:
  Service(RemoteHub& hub, Gate& gate, std::function<bool()> healthy)
      : hub_(hub), gate_(gate), healthy_(std::move(healthy)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    gate_.BeginCall(context->peer());
    if (context->method() == kHealthMethod) return MakeHealthReactor(healthy_);
    if (context->method() != kRemoteMethod) return new Refusal;
    return MakeReactor(hub_, gate_, outbox_, context);
  }

 private:
  RemoteHub& hub_;
  Gate& gate_;
  Outbox outbox_;
  const std::function<bool()> healthy_;
};

Result<std::vector<std::string>> ReadTokens(const RemoteFleetOptions& options) {
  std::vector<std::string> tokens;
  for (const Path& file : options.token_files) {
    ASSIGN_OR_RETURN(std::string token, ReadToken(file));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// The hub as a fleet, with gate and server in front of it.
class GrpcFleet : public Fleet {
 public:
  GrpcFleet(const RemoteFleetOptions& options, std::vector<std::string> tokens,
            std::shared_ptr<Certificates> certificates, std::unique_ptr<FileLock> lock,
            std::unique_ptr<Gate> gate)
      : options_(options),
        hub_(std::make_unique<RemoteHub>(options, std::move(tokens))),
        gate_(std::move(gate)),
        service_(*hub_, *gate_,
                 [this] { return !leaving_ && (!options_.healthy || options_.healthy()); }),
        certificates_(std::move(certificates)),
        lock_(std::move(lock)) {
    if (options_.reload) reader_ = std::make_unique<Thread>("remote secrets", [this] { Reread(); });
  }
  ~GrpcFleet() override {
    {
      MutexLock lock(mu_);
      leaving_ = true;
      changed_.NotifyAll();
    }
    reader_.reset();
    hub_->Stop();
    if (server_ == nullptr) return;
    // shutdown notices on their way arrive; the streams that are left are closed
    hub_->EndAll({RemoteCode::kUnavailable, "the learner process is shutting down"});
    hub_->WaitUntilClosed(std::chrono::seconds(shutting_down_ ? 10 : 2));
    gate_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
    hub_->WaitUntilClosed(std::chrono::hours(1));
    server_.reset();
  }

  Status Start(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    using Kind = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(Kind::FROM_FD, credentials);
    builder.RegisterCallbackGenericService(&service_);
    const int message_max = static_cast<int>(hub_->message_bytes_max() + kMessageSlackBytes);
    builder.SetMaxReceiveMessageSize(message_max);
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kPingIntervalMs);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 64);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300'000);
    for (const auto& [name, value] : StreamSettings(message_max))
      builder.AddChannelArgument(name, value);
    builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 0);
    // gRPC reads a whole message before it looks at its length: the quota bounds what all peers
    // together can make it keep. A slot has at most one row in flight each way.
    grpc::ResourceQuota quota("samara remote actors");
    quota.Resize(kQuotaBytes + hub_->slots() * (kQuotaSlotBytes + 2 * hub_->row_bytes()));
    builder.SetResourceQuota(quota);
    builder.SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return {Code::kCannotCreate, "gRPC does not start"};
    gate_->Start([this](int fd, int listener) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.listener_fd = listener, connection.fd = fd;
      acceptor_->HandleNewConnection(&connection);
    });
    return {};
  }
  int port() const { return gate_->port(); }
  RemoteHub& hub() { return *hub_; }

  const EnvironmentSpec& spec() const override { return hub_->spec(); }
  uint32_t slots() const override { return hub_->slots(); }
  uint32_t live() const override { return hub_->live(); }
  void Begin(uint32_t slot, uint64_t episode, const EpisodeSpec& spec) override {
    hub_->Begin(slot, episode, spec);
  }
  void Act(uint32_t slot, const Action& action) override { hub_->Act(slot, action); }
  void ActMany(std::span<const SlotAction> actions) override { hub_->ActMany(actions); }
  size_t Wait(std::span<SlotEvent> out, std::chrono::microseconds timeout) override {
    return hub_->Wait(out, timeout);
  }
  size_t WaitForMany(std::span<SlotEvent> out, size_t wanted,
                     std::chrono::microseconds timeout) override {
    return hub_->WaitForMany(out, wanted, timeout);
  }
  std::span<const std::byte> observation(uint32_t slot) const override {
    return hub_->observation(slot);
  }
  std::span<const std::byte> pictures(uint32_t slot) const override { return hub_->pictures(slot); }
  FleetCounters counters() const override { return hub_->counters(); }
  std::map<std::string, uint64_t> drops() const override {
    std::map<std::string, uint64_t> drops = hub_->drops();
    for (const auto& [reason, count] : gate_->drops()) drops[reason] += count;
    return drops;
  }
  Status status() const override { return hub_->status(); }
  void Stop() override { hub_->Stop(); }
  void NotifyShutdown() override {
    shutting_down_ = true;
    hub_->NotifyShutdown();
  }

 private:
  // Tokens and certificates are read again whenever that is asked for; what is wrong changes
  // nothing.
  void Reread() {
    MutexLock lock(mu_);
    while (
        !changed_.WaitFor(mu_, kReloadAsked, [this]() REQUIRES(mu_) { return leaving_.load(); })) {
      if (!options_.reload()) continue;
      const Status read = RereadFiles();
      if (read.ok())
        LogInfo("tokens and certificates of remote actors were reloaded");
      else
        LogError("tokens and certificates of remote actors are unchanged: " + read.message());
    }
  }
  Status RereadFiles() {
    ASSIGN_OR_RETURN(std::vector<std::string> tokens, ReadTokens(options_));
    if (certificates_ != nullptr) RETURN_IF_ERROR(certificates_->ReadAgain());
    hub_->SetTokens(std::move(tokens));
    return {};
  }

  const RemoteFleetOptions options_;
  std::unique_ptr<RemoteHub> hub_;
  const std::unique_ptr<Gate> gate_;
  Service service_;
  const std::shared_ptr<Certificates> certificates_;  // null without TLS
  std::unique_ptr<FileLock> lock_;  // of a Unix socket, which another learner process would replace
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<bool> shutting_down_{false};  // a thousand shutdown notices take a while
  Mutex mu_;
  CondVar changed_;  // signalled when leaving_ is set
  std::atomic<bool> leaving_{false};
  std::unique_ptr<Thread> reader_;
};

// Each connection is a descriptor; the soft limit is often 1,024.
void RaiseDescriptorLimit(uint32_t slots) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < slots + 64)
    LogWarning("at most " + std::to_string(limit.rlim_max) + " open files for " +
               std::to_string(slots) + " slots: raise the hard limit (ulimit -Hn)");
}

// Checks what an address that other machines can reach requires: TLS, certificates of actors and a
// token.
Status CheckRoutable(const RemoteFleetOptions& options, const RemoteAddress& address) {
  std::string missing;
  for (const auto& [there, name] :
       {std::pair(!options.certificate.empty(), "--certificate, --key"),
        {!options.client_ca.empty() || options.token_only, "--client-ca"},
        {!options.token_files.empty(), "--token-file"}}) {
    if (!there) missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  if (!missing.empty() && !options.insecure_i_know) {
    return {Code::kNotPermitted,
            address.text() +
                ": other machines can reach this address: it needs --certificate, --key, "
                "--client-ca (`samara certificates`; actors then show --certificate actor.pem and "
                "--key actor.key) and --token-file (`samara token`); missing: " +
                missing +
                ". --token-only lets actors in without certificates, --insecure-i-know anybody"};
  }
  if (!missing.empty())
    LogWarning("listening on " + address.text() + " without " + missing +
               ": every process that reaches it can disturb this training, and read it where there "
               "is no TLS");
  else if (options.token_only)
    LogWarning("listening on " + address.text() +
               " without certificates of actors: a peer that reaches it can use CPU time and "
               "memory before the token is checked");
  return {};
}

Status CheckSafe(const RemoteFleetOptions& options, const RemoteAddress& address) {
  if (options.token_files.size() > 2)
    return {Code::kConfig, "--token-file: at most two tokens are valid at once"};
  if (options.certificate.empty() != options.key.empty())
    return {Code::kConfig, "--certificate and --key: expected both or neither"};
  if (!options.client_ca.empty() && options.certificate.empty())
    return {Code::kConfig, "--client-ca: needs --certificate and --key"};
  if (!options.client_ca.empty() && options.token_only)
    return {Code::kConfig, "--client-ca and --token-only: expected one of them"};
  if (address.kind == RemoteAddress::Kind::kUnix) return PrepareSocketFolder(address);
  if (address.kind == RemoteAddress::Kind::kRoutable) return CheckRoutable(options, address);
  if (options.insecure_i_know && options.token_files.empty() && options.client_ca.empty())
    LogWarning("listening on " + address.text() +
               " without --token-file: every user of this machine may connect");
  return {};
}

// Upper bound of the bytes that an actor sends until its Hello is accepted: TLS, HTTP/2 and the
// Hello itself.
size_t GreetingBytes(const RemoteFleetOptions& options) {
  // with certificates of actors HTTP/2 begins only after theirs, whose chains may be long
  const size_t transport = size_t{options.client_ca.empty() ? 8U : 64U} << 10;
  if (!options.spec) return transport + (size_t{64} << 10);
  HelloMessage hello;
  hello.spec = *options.spec;
  return transport + WriteHello(hello).size();
}

GateOptions GateFor(const RemoteFleetOptions& options, const RemoteAddress& address) {
  GateOptions gate;
  gate.bytes = GreetingBytes(options);
  // certificates tell whose actor it is, whichever user runs it
  gate.same_user = address.kind == RemoteAddress::Kind::kUnix ||
                   (address.kind == RemoteAddress::Kind::kLoopback && options.client_ca.empty() &&
                    !options.insecure_i_know);
  // a whole farm may come back at once, while the actors that died are still to be noticed
  gate.crowd = size_t{2} * options.slots + 64;
  return gate;
}

}  // namespace

Result<RemoteFleet> MakeRemoteFleet(const RemoteFleetOptions& options) {
  QuietGrpc();
  if (options.slots < 1) return Status(Code::kConfig, "remote slots: expected at least 1");
  // 1. is it safe
  ASSIGN_OR_RETURN(RemoteAddress address, ParseAddress(options.address));
  RETURN_IF_ERROR(CheckSafe(options, address));
  ASSIGN_OR_RETURN(std::vector<std::string> tokens, ReadTokens(options));
  std::shared_ptr<Certificates> certificates;
  if (!options.certificate.empty()) {
    ASSIGN_OR_RETURN(certificates,
                     Certificates::Read(options.certificate, options.key, options.client_ca));
  }
  const auto credentials = certificates != nullptr ? MakeServerCredentials(certificates)
                                                   : grpc::InsecureServerCredentials();
  RaiseDescriptorLimit(options.slots);
  // 2. a socket that is held is not to be taken away
  std::unique_ptr<FileLock> lock;
  if (address.kind == RemoteAddress::Kind::kUnix) {
    auto acquired = FileLock::Acquire(Path(address.host + ".lock"));
    if (!acquired.ok()) return acquired.status().Annotate(address.text());
    lock = std::move(*acquired);
  }
  // 3. listen
  ASSIGN_OR_RETURN(auto gate, Gate::Listen(address, GateFor(options, address)));
  auto fleet = std::make_unique<GrpcFleet>(options, std::move(tokens), certificates,
                                           std::move(lock), std::move(gate));
  RETURN_IF_ERROR(fleet->Start(credentials));
  if (address.kind != RemoteAddress::Kind::kUnix) address.port = fleet->port();
  LogInfo("listening for remote actors on " + address.text() + ", " +
          std::to_string(options.slots) + " slots");
  if (!options.spec) {
    RETURN_IF_ERROR(fleet->hub().WaitForSpec(options.spec_timeout));
  }
  return RemoteFleet{std::move(fleet), address.text()};
}

std::string GrpcVersion() { return grpc::Version(); }

}  // namespace samara
