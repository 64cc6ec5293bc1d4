#include "fleet/native_actor.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/clock.h"
#include "fleet/actor_messages.h"
#include "fleet/actor_process.h"
#include "fleet/checks.h"
#include "fleet/slot_server.h"

namespace samara {
namespace {

using Json = nlohmann::json;

Status Gone() { return {Code::kUnavailable, "the learner process has ended"}; }

Status Say(const std::string& packet) {
  const ssize_t n = write(kActorControl, packet.data(), packet.size());
  return n == static_cast<ssize_t>(packet.size()) ? Status::Ok() : Gone();
}

Result<std::string> ReceivePacket() {
  std::string packet(kPacketBytesMax, '\0');
  const ssize_t n = read(kActorControl, packet.data(), packet.size());
  if (n <= 0) return Gone();
  packet.resize(static_cast<size_t>(n));
  return packet;
}

bool EngineGone() {
  pollfd p{kActorControl, POLLIN, 0};
  return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)) != 0;
}

// The whole of a descriptor's memory; it stays mapped while the process lives.
Result<std::span<std::byte>> Map(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0)
    return Status(Code::kIoError, "shared memory of the learner process: fstat");
  const auto bytes = static_cast<size_t>(info.st_size);
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED)
    return Status(Code::kIoError, std::string("shared memory of the learner process: mmap: ") +
                                      std::strerror(errno));
  return std::span(static_cast<std::byte*>(address), bytes);
}

// Serves one slot after the other, as their commands come.
class Loop {
 public:
  Loop(std::byte* segment, const SegmentLayout& layout, std::byte* bell,
       std::vector<std::unique_ptr<Environment>> environments)
      : values_(ValuesOf(environments.front()->spec().action)),
        server_(segment, layout, reinterpret_cast<Doorbell*>(bell), values_),
        environments_(std::move(environments)) {}

  Status Run() {
    for (;;) {
      while (server_.Next()) RETURN_IF_ERROR(Serve());
      if (server_.leave()) return Status::Ok();
      if (!server_.Wait() && EngineGone()) return Status::Ok();
    }
  }
  uint32_t slot() const { return server_.slot(); }

 private:
  static size_t ValuesOf(const ActionSpec& action) {
    return action.discrete ? 0 : static_cast<size_t>(action.n);
  }

  Status Serve() {
    if (const std::string why = server_.Refusal(); !why.empty()) return {Code::kConfig, why};
    const SlotCommand& command = server_.command();
    Environment& environment = *environments_[server_.slot()];
    const ActionSpec& action = environment.spec().action;
    SlotReply reply{};
    reply.step = command.step;
    const SteadyTime start = Now();
    if (command.kind == SlotCommandKind::kReset) {
      environment.Reset(
          {.seed = command.seed, .noops = command.noops, .frames_max = command.frames_max},
          server_.observation());
    } else {
      const bool known = command.kind == SlotCommandKind::kAct &&
                         (!action.discrete || (command.index >= 0 && command.index < action.n));
      if (!known)
        return {Code::kConfig, "a command of the learner process breaks the slot protocol"};
      const StepResult result =
          environment.Step({.index = command.index, .values = std::span(command.values, values_)},
                           server_.observation());
      reply.reward = result.reward;
      reply.frames = result.frames;
      reply.flags = (result.terminated ? kSlotTerminated : 0U) |
                    (result.truncated ? kSlotTruncated : 0U) |
                    (result.life_lost ? kSlotLifeLost : 0U);
    }
    reply.nanoseconds = static_cast<uint64_t>(std::chrono::nanoseconds(Now() - start).count());
    if (const std::string why =
            NotFinite(reply.reward, environment.spec().observation, server_.observation());
        !why.empty())
      return {Code::kInternal, environment.spec().id + ": " + why};
    server_.Publish(reply);
    return Status::Ok();
  }

  const size_t values_;  // of a continuous action
  SlotServer server_;
  const std::vector<std::unique_ptr<Environment>> environments_;
};

std::string ErrorMessage(const Status& status, std::optional<uint32_t> slot) {
  Json json = {
      {"type", "error"}, {"code", static_cast<int>(status.code())}, {"line", status.message()}};
  if (slot) json["slot"] = *slot;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

struct Configuration {
  uint32_t slots = 0;
  std::string environment_json;
};

Result<Configuration> Configure() {
  ASSIGN_OR_RETURN(const std::string packet, ReceivePacket());
  const Json json = Json::parse(packet, nullptr, false);
  if (!json.is_object() || json.value("protocol", 0U) != kSlotProtocol)
    return Status(Code::kConfig, "the learner process has another slot protocol than " +
                                     std::to_string(kSlotProtocol) +
                                     ": build both from one source");
  if (json.value("render", false))
    return Status(Code::kConfig, "native actors draw no pictures: expected render=false");
  return Configuration{json.value("slots", 0U), json.at("environment").dump()};
}

Result<std::vector<std::unique_ptr<Environment>>> Build(const EnvironmentMaker& make,
                                                        const Configuration& configuration) {
  std::vector<std::unique_ptr<Environment>> environments;
  for (uint32_t s = 0; s < configuration.slots; ++s) {
    ASSIGN_OR_RETURN(auto environment, make(configuration.environment_json));
    environments.push_back(std::move(environment));
  }
  return environments;
}

}  // namespace

Status RunNativeActor(const EnvironmentMaker& make) {
  // no orphan burns a core
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return {Code::kInternal, "prctl failed"};
  ASSIGN_OR_RETURN(const Configuration configuration, Configure());
  auto environments = Build(make, configuration);
  if (!environments.ok()) {
    RETURN_IF_ERROR(Say(ErrorMessage(environments.status(), std::nullopt)));
    return environments.status();
  }
  const EnvironmentSpec& spec = environments->front()->spec();
  if (!spec.action.discrete && spec.action.n > static_cast<int64_t>(kActionValuesMax))
    return {Code::kConfig, spec.id + ": more action dimensions than a slot holds"};
  RETURN_IF_ERROR(Say(WriteHello(spec)));
  RETURN_IF_ERROR(ReceivePacket().status());  // welcome: the segment has its size now
  ASSIGN_OR_RETURN(const std::span<std::byte> segment, Map(kActorSegment));
  ASSIGN_OR_RETURN(const std::span<std::byte> bell, Map(kActorBell));
  const SegmentLayout layout(configuration.slots, spec.observation.bytes(), 0);
  if (const auto why = SlotServer::Mismatch(segment.data(), segment.size(), layout); !why.empty())
    return {Code::kConfig, why};
  Loop loop(segment.data(), layout, bell.data(), std::move(*environments));
  Status status = loop.Run();
  if (!status.ok()) RETURN_IF_ERROR(Say(ErrorMessage(status, loop.slot())));
  return status;
}

}  // namespace samara
