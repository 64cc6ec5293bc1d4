// samara act: a policy that answers observations on its standard input; samara.Policy (python/)
// speaks with it.
//
// The first line of the output is one JSON object: what observations and actions are. Then every
// request, 16 bytes and an observation, is answered by 4 bytes and the values of a continuous
// action. Numbers are in the machine's own order.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "fleet/actor_messages.h"
#include "play/acting_policy.h"

namespace samara {
namespace {

constexpr uint32_t kMemories = 256;

struct ActArguments {
  std::string target;
  LoadOptions load;
  bool json = false;
};

enum ActFlags : uint32_t { kFirst = 1, kGreedy = 2 };

struct ActRequest {
  uint32_t memory, flags;
  float reward;
  uint32_t unused;
};
static_assert(sizeof(ActRequest) == 16);

// False at the end of the input.
Result<bool> ReadWhole(std::span<std::byte> out) {
  size_t filled = 0;
  while (filled < out.size()) {
    const ssize_t n = read(STDIN_FILENO, out.data() + filled, out.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return Status(Code::kIoError, std::string("standard input: ") + std::strerror(errno));
    if (n == 0 && filled == 0) return false;
    if (n == 0) return Status(Code::kBadData, "standard input ends within a request");
    filled += static_cast<size_t>(n);
  }
  return true;
}

Status WriteWhole(std::span<const std::byte> bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(STDOUT_FILENO, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {Code::kIoError, std::string("standard output: ") + std::strerror(errno)};
    done += static_cast<size_t>(n);
  }
  return Status::Ok();
}

nlohmann::json Describe(const ActingPolicy& policy, const std::string& source) {
  nlohmann::json described = DescribeSpaces(policy.environment());
  described.update({{"source", source},
                    {"id", policy.environment().id},
                    {"memories", kMemories},
                    {"greedy", policy.greedy()}});
  return described;
}

Status Answer(ActingPolicy& policy) {
  std::vector<std::byte> observation(policy.environment().observation.bytes());
  for (;;) {
    ActRequest request;
    ASSIGN_OR_RETURN(const bool more, ReadWhole(std::as_writable_bytes(std::span(&request, 1))));
    if (!more) return Status::Ok();
    if (request.memory >= kMemories)
      return {Code::kBadData, "a request of memory " + std::to_string(request.memory)};
    ASSIGN_OR_RETURN(const bool whole, ReadWhole(observation));
    if (!whole) return {Code::kBadData, "standard input ends within a request"};
    ASSIGN_OR_RETURN(const Action action, policy.Decide({.memory = request.memory,
                                                         .first = (request.flags & kFirst) != 0,
                                                         .greedy = (request.flags & kGreedy) != 0,
                                                         .reward = request.reward,
                                                         .observation = observation}));
    const auto values = std::as_bytes(action.values);
    std::vector<std::byte> reply(sizeof(action.index) + values.size());
    std::memcpy(reply.data(), &action.index, sizeof(action.index));
    std::ranges::copy(values, reply.begin() + sizeof(action.index));
    RETURN_IF_ERROR(WriteWhole(reply));
  }
}

Status RunAct(const Invocation& invocation, const ActArguments& args) {
  ASSIGN_OR_RETURN(const Policy policy, LoadPolicy(args.target, args.load));
  if (policy.config.Learns()) RETURN_IF_ERROR(NeedAgents(invocation, policy.config.run.algorithm));
  ASSIGN_OR_RETURN(const auto acting, MakeActingPolicy(policy, kMemories));
  PrintJson(Describe(*acting, policy.source));
  return Answer(*acting);
}

}  // namespace

void AddAct(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("act", "read observations, print a policy's actions");
  auto args = std::make_shared<ActArguments>();
  command->add_option("target", args->target, "run folder or policy file")->required();
  command->add_option("overrides", args->load.overrides, "table.key=value, such as env.id=...");
  AddLoading(*command, args->load);
  AddIndividual(*command, args->load);
  command->add_flag("--json", args->json,
                    "errors as one JSON object; the first line always is one");
  command->callback([=, &invocation] {
    invocation.run = [=, &invocation] { return RunAct(invocation, *args); };
  });
}

}  // namespace samara
