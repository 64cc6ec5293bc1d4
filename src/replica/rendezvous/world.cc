#include "replica/rendezvous/world.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <vector>

#include "core/crc32c.h"
#include "core/log.h"
#include "core/parse_number.h"
#include "replica/rendezvous/secret.h"

namespace samara {
namespace {

constexpr int kRanksMax = 1 << 20;
// Ports that are derived from a job's number: below those that the kernel hands out itself.
constexpr uint16_t kPortFirst = 20'000, kPorts = 12'000;
constexpr uint16_t kKubernetesPort = 29'500;  // what torch's users expect
// Step numbers from here on are Slurm's own: batch script, extern, interactive.
constexpr int64_t kSlurmStepMax = 0xffff'fff0;

Status Bad(std::string text) { return {Code::kConfig, std::move(text)}; }

// The variables of one launcher; a variable that is empty counts as not set.
class Variables {
 public:
  explicit Variables(const EnvironmentVariables& environment) : environment_(environment) {}

  std::optional<std::string> Text(const std::string& name) const {
    auto value = environment_(name);
    return value.has_value() && !value->empty() ? value : std::nullopt;
  }
  bool Has(const std::string& name) const { return Text(name).has_value(); }
  std::string TextOr(const std::string& name, std::string other) const {
    return Text(name).value_or(std::move(other));
  }
  // kConfig when it is set and no number of [low, high].
  Result<std::optional<int64_t>> Number(const std::string& name, int64_t low, int64_t high) const {
    const auto text = Text(name);
    if (!text.has_value()) return std::optional<int64_t>();
    const auto value = ParseNumber<int64_t>(*text);
    if (!value || *value < low || *value > high)
      return Bad(fmt::format("{}={}: expected a number from {} to {}", name,
                             EscapeControl(text->substr(0, 100)), low, high));
    return value;
  }
  // kConfig when it is missing too: `set` is what is there already.
  Result<int64_t> Needed(const std::string& name, int64_t low, int64_t high, const std::string& set,
                         const std::string& remedy) const {
    ASSIGN_OR_RETURN(const auto value, Number(name, low, high));
    if (value.has_value()) return *value;
    return Bad(fmt::format("{} is set but {} is not: {}", set, name, remedy));
  }

 private:
  const EnvironmentVariables& environment_;
};

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

uint16_t DerivedPort(std::string_view job) {
  const uint32_t hash = Crc32c(job);
  return static_cast<uint16_t>(kPortFirst + hash % kPorts);
}

// MASTER_PORT, or else `derived` (0: none).
Status ReadPort(const Variables& env, uint16_t derived, const std::string& remedy, World& world) {
  ASSIGN_OR_RETURN(const auto port, env.Number("MASTER_PORT", 1, 65'535));
  world.port = static_cast<uint16_t>(port.value_or(derived));
  return world.port != 0 ? Status::Ok() : Bad(remedy);
}

// Numbers among the ranks of the host, where the launcher tells them; without, all ranks are here
// when rank 0 is on the loopback, and nothing is known otherwise.
Status ReadLocal(const Variables& env, const std::string& rank, const std::string& size,
                 World& world) {
  ASSIGN_OR_RETURN(const auto local_rank, env.Number(rank, 0, kRanksMax));
  ASSIGN_OR_RETURN(const auto local_size, env.Number(size, 1, kRanksMax));
  const bool here = IsLoopback(world.address) || world.size == 1;
  world.local_rank = static_cast<int>(local_rank.value_or(here ? world.rank : 0));
  world.local_size =
      static_cast<int>(local_size.value_or(here ? world.size : world.local_rank + 1));
  if (world.local_rank >= world.local_size || world.local_size > world.size)
    return Bad(fmt::format("{}={}, {}={} among {} ranks: expected rank < size <= all ranks", rank,
                           world.local_rank, size, world.local_size, world.size));
  return Status::Ok();
}

Status CheckRank(const std::string& rank, const std::string& size, const World& world) {
  if (world.rank < world.size) return Status::Ok();
  return Bad(fmt::format("{}={} with {}={}: expected a rank from 0 to {}", rank, world.rank, size,
                         world.size, world.size - 1));
}

// One that is alone needs no address.
World Alone(std::string launcher) {
  World world;
  world.launcher = std::move(launcher);
  return world;
}

Result<World> FromFlags(const WorldFlags& flags) {
  std::string missing;
  const auto need = [&](bool there, const char* name) {
    if (!there) missing += std::string(missing.empty() ? "" : ", ") + name;
  };
  need(flags.rank.has_value(), "the rank");
  need(flags.size.has_value(), "the number of ranks");
  if (flags.size.value_or(2) > 1) {
    need(!flags.address.empty(), "the address");
    need(flags.port != 0, "the port");
  }
  if (!missing.empty())
    return Bad("of rank, number of ranks, address and port some are given, but not " + missing +
               ": give all or none");
  World world = Alone("flags");
  world.rank = *flags.rank;
  world.size = *flags.size;
  if (world.size < 1 || world.size > kRanksMax || world.rank < 0)
    return Bad(fmt::format("rank {} of {}: expected a rank from 0 and 1 to {} ranks", world.rank,
                           world.size, kRanksMax));
  RETURN_IF_ERROR(CheckRank("rank", "ranks", world));
  if (world.size == 1) return world;
  world.address = flags.address;
  world.port = flags.port;
  if (IsLoopback(world.address)) {
    world.local_rank = world.rank;
    world.local_size = world.size;
  }
  return world;
}

// torchrun, `samara launch`, Kubeflow's trainers, and by hand.
Result<World> FromRank(const Variables& env) {
  const std::string remedy =
      "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT belong together: set or unset all";
  const bool torchrun = env.Has("TORCHELASTIC_RUN_ID");
  World world = Alone(torchrun                                 ? "torchrun"
                      : env.TextOr("SAMARA_LAUNCH", "") == "1" ? "samara launch"
                                                               : "environment");
  ASSIGN_OR_RETURN(world.rank, env.Needed("RANK", 0, kRanksMax, "WORLD_SIZE", remedy));
  ASSIGN_OR_RETURN(world.size, env.Needed("WORLD_SIZE", 1, kRanksMax, "RANK", remedy));
  RETURN_IF_ERROR(CheckRank("RANK", "WORLD_SIZE", world));
  ASSIGN_OR_RETURN(const auto restarts,
                   env.Number("TORCHELASTIC_RESTART_COUNT", 0, std::numeric_limits<int>::max()));
  world.restarts = static_cast<uint32_t>(restarts.value_or(0));
  world.secret = env.TextOr("TORCHELASTIC_RUN_ID", "");
  // "True" with torch 2.13, "1" by hand
  const std::string agent = env.TextOr("TORCHELASTIC_USE_AGENT_STORE", "");
  world.agent_store = torchrun && (agent == "True" || agent == "true" || agent == "1");
  if (world.size > 1 || world.agent_store) {
    if (!env.Has("MASTER_ADDR")) return Bad("RANK is set but MASTER_ADDR is not: " + remedy);
    world.address = env.TextOr("MASTER_ADDR", "");
    RETURN_IF_ERROR(ReadPort(env, 0, "RANK is set but MASTER_PORT is not: " + remedy, world));
  }
  RETURN_IF_ERROR(ReadLocal(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE", world));
  return world;
}

// Environment variables of an MPI: ranks, sizes, and where a job's name is found.
struct MpiNames {
  const char *launcher, *rank, *size, *local_rank, *local_size;
  std::vector<std::string> job;
  bool job_everywhere;  // has the same name on every host
  const char* remedy;
};

const MpiNames& OpenMpi() {
  static const MpiNames names{
      "Open MPI",
      "OMPI_COMM_WORLD_RANK",
      "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE",
      {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"},
      true,
      "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 with the host of "
      "rank 0"};
  return names;
}

const MpiNames& Mpich() {
  static const MpiNames names{"MPICH",
                              "PMI_RANK",
                              "PMI_SIZE",
                              "MPI_LOCALRANKID",
                              "MPI_LOCALNRANKS",
                              {"PMI_PORT"},  // where the launcher listens: one job's alone
                              false,
                              "mpiexec -genv MASTER_ADDR HOST -genv MASTER_PORT 29500 with the "
                              "host of rank 0 (127.0.0.1 when there is only one)"};
  return names;
}

Result<World> FromMpi(const Variables& env, const MpiNames& names) {
  World world = Alone(names.launcher);
  const std::string remedy = std::string(names.launcher) + " sets both: was one unset?";
  ASSIGN_OR_RETURN(world.rank, env.Needed(names.rank, 0, kRanksMax, names.size, remedy));
  ASSIGN_OR_RETURN(world.size, env.Needed(names.size, 1, kRanksMax, names.rank, remedy));
  RETURN_IF_ERROR(CheckRank(names.rank, names.size, world));
  if (world.size == 1) return world;
  ASSIGN_OR_RETURN(const auto local_size, env.Number(names.local_size, 1, kRanksMax));
  const bool one_host = local_size.has_value() && *local_size == world.size;
  world.address = env.TextOr("MASTER_ADDR", one_host ? "127.0.0.1" : "");
  if (world.address.empty())
    return Bad(fmt::format("{} ranks of {} on several hosts, but MASTER_ADDR is not set: {}",
                           world.size, names.launcher, names.remedy));
  uint16_t derived = 0;
  std::string job;
  for (const std::string& name : names.job)
    if (job.empty()) job = env.TextOr(name, "");
  if (!job.empty()) derived = DerivedPort(job);
  if (names.job_everywhere || one_host) world.secret = job;
  RETURN_IF_ERROR(ReadPort(env, derived,
                           fmt::format("{} does not tell which job this is, and MASTER_PORT is not "
                                       "set: {}",
                                       names.launcher, names.remedy),
                           world));
  RETURN_IF_ERROR(ReadLocal(env, names.local_rank, names.local_size, world));
  return world;
}

// The first host of Slurm's notation: "node[03-05,7]" is node03, "a1,b[1-2]" is a1,
// "r[1-2]n[4,9]" is r1n4. Empty when it is none.
std::string FirstHost(std::string_view list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t end = list.find(']', i);
    if (end == std::string_view::npos) return {};
    const std::string_view ranges = list.substr(i + 1, end - i - 1);
    const std::string_view first = ranges.substr(0, ranges.find_first_of("-,"));
    if (first.empty() || first.find_first_not_of("0123456789") != std::string_view::npos) return {};
    host += first;
    i = end;
  }
  return host.find_first_of("[] ") == std::string::npos ? host : std::string();
}

// Returns the entry of node `node` in "2(x3),1"; nothing when it is not there.
std::optional<int64_t> TasksOfNode(std::string_view list, int64_t node) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
    int64_t tasks = 0, times = 1;
    const char* const end = entry.data() + entry.size();
    auto read = std::from_chars(entry.data(), end, tasks);
    if (read.ec != std::errc() || tasks < 1) return std::nullopt;
    if (read.ptr != end) {
      if (!std::string_view(read.ptr, end).starts_with("(x")) return std::nullopt;
      read = std::from_chars(read.ptr + 2, end, times);
      if (read.ec != std::errc() || times < 1) return std::nullopt;
    }
    if (node < times) return tasks;
    node -= times;
  }
  return std::nullopt;
}

// A step that srun started; a batch script is none, though it has some of the variables.
Result<bool> InSlurmStep(const Variables& env) {
  if (!env.Has("SLURM_PROCID") && !env.Has("SLURM_NTASKS")) return false;
  ASSIGN_OR_RETURN(const auto step,
                   env.Number("SLURM_STEP_ID", 0, std::numeric_limits<int64_t>::max()));
  return step.has_value() && *step < kSlurmStepMax;
}

Result<World> FromSlurm(const Variables& env) {
  World world = Alone("Slurm");
  const std::string remedy = "srun sets both: was one unset?";
  const bool step_tasks = env.Has("SLURM_STEP_NUM_TASKS");
  const std::string size = step_tasks ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  ASSIGN_OR_RETURN(world.rank, env.Needed("SLURM_PROCID", 0, kRanksMax, size, remedy));
  ASSIGN_OR_RETURN(world.size, env.Needed(size, 1, kRanksMax, "SLURM_PROCID", remedy));
  RETURN_IF_ERROR(CheckRank("SLURM_PROCID", size, world));
  ASSIGN_OR_RETURN(const auto restarts,
                   env.Number("SLURM_RESTART_COUNT", 0, std::numeric_limits<int>::max()));
  world.restarts = static_cast<uint32_t>(restarts.value_or(0));
  if (world.size == 1) return world;
  // the step's hosts may be fewer than the job's
  const std::string list =
      env.Has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  const std::string nodes = env.TextOr(list, env.TextOr("SLURM_NODELIST", ""));
  world.address = env.TextOr("MASTER_ADDR", FirstHost(nodes));
  if (world.address.empty())
    return Bad(nodes.empty() ? "SLURM_PROCID is set but SLURM_JOB_NODELIST is not: set MASTER_ADDR"
                             : fmt::format("{}={}: no list of hosts; set MASTER_ADDR", list,
                                           EscapeControl(nodes.substr(0, 100))));
  const std::string job = env.TextOr("SLURM_JOB_ID", env.TextOr("SLURM_JOBID", ""));
  if (!job.empty()) world.secret = job + "." + env.TextOr("SLURM_STEP_ID", "");
  RETURN_IF_ERROR(ReadPort(env, job.empty() ? 0 : DerivedPort(world.secret),
                           "SLURM_PROCID is set but SLURM_JOB_ID is not: set MASTER_PORT", world));
  ASSIGN_OR_RETURN(const int64_t local, env.Needed("SLURM_LOCALID", 0, kRanksMax, "SLURM_PROCID",
                                                   "srun sets both: was one unset?"));
  ASSIGN_OR_RETURN(const auto node, env.Number("SLURM_NODEID", 0, kRanksMax));
  world.local_rank = static_cast<int>(local);
  const std::string tasks =
      env.TextOr("SLURM_STEP_TASKS_PER_NODE", env.TextOr("SLURM_TASKS_PER_NODE", ""));
  world.local_size = static_cast<int>(
      TasksOfNode(tasks, node.value_or(0)).value_or(int64_t{world.local_rank} + 1));
  if (world.local_rank >= world.local_size || world.local_size > world.size)
    return Bad(
        fmt::format("SLURM_LOCALID={} with {} tasks of {} on this node: they contradict "
                    "each other",
                    world.local_rank, world.local_size, world.size));
  return world;
}

// An Indexed Job: Kubernetes tells the index; how many there are and where the first one is stands
// in the pod template.
Result<World> FromKubernetes(const Variables& env) {
  World world = Alone("Kubernetes");
  ASSIGN_OR_RETURN(world.size, env.Needed("WORLD_SIZE", 1, kRanksMax, "JOB_COMPLETION_INDEX",
                                          "set it in the pod template to the job's completions, or "
                                          "to 1 for pods that know nothing of each other"));
  if (world.size == 1) return world;
  ASSIGN_OR_RETURN(world.rank, env.Needed("JOB_COMPLETION_INDEX", 0, kRanksMax, "WORLD_SIZE", ""));
  RETURN_IF_ERROR(CheckRank("JOB_COMPLETION_INDEX", "WORLD_SIZE", world));
  world.address = env.TextOr("MASTER_ADDR", "");
  if (world.address.empty())
    return Bad(
        "JOB_COMPLETION_INDEX is set but MASTER_ADDR is not: set it in the pod template to the "
        "name of pod 0, JOB-0.SERVICE with a headless service");
  RETURN_IF_ERROR(ReadPort(env, kKubernetesPort, "", world));
  RETURN_IF_ERROR(ReadLocal(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE", world));
  return world;
}

// srun with a PMI plug-in sets MPICH's variables too.
bool SlurmSpeaksPmi(const Variables& env) {
  return env.TextOr("PMI_RANK", "") == env.TextOr("SLURM_PROCID", "-") &&
         env.TextOr("PMI_SIZE", "") ==
             env.TextOr("SLURM_STEP_NUM_TASKS", env.TextOr("SLURM_NTASKS", "-"));
}

// Below RANK in the order: any launcher that sets a rank.
Result<std::optional<World>> FromOthers(const Variables& env) {
  const auto some = [](Result<World> world) -> Result<std::optional<World>> {
    if (!world.ok()) return world.status();
    return std::optional<World>(std::move(*world));
  };
  ASSIGN_OR_RETURN(const bool step, InSlurmStep(env));
  if (env.Has("OMPI_COMM_WORLD_RANK") || env.Has("OMPI_COMM_WORLD_SIZE"))
    return some(FromMpi(env, OpenMpi()));
  if ((env.Has("PMI_RANK") || env.Has("PMI_SIZE")) && !(step && SlurmSpeaksPmi(env)))
    return some(FromMpi(env, Mpich()));
  if (step) return some(FromSlurm(env));
  if (env.Has("JOB_COMPLETION_INDEX")) return some(FromKubernetes(env));
  return std::optional<World>();
}

}  // namespace

EnvironmentVariables ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

namespace {

Result<World> Discover(const Variables& env, const WorldFlags& flags) {
  if (flags.rank.has_value() || flags.size.has_value() || !flags.address.empty() || flags.port != 0)
    return FromFlags(flags);
  if (env.Has("RANK")) return FromRank(env);
  ASSIGN_OR_RETURN(const auto world, FromOthers(env));
  // a batch script may export WORLD_SIZE for srun's tasks: alone it makes no set, but it must agree
  ASSIGN_OR_RETURN(const auto size, env.Number("WORLD_SIZE", 1, kRanksMax));
  if (!world.has_value()) return size.value_or(1) > 1 ? FromRank(env) : Alone("none");
  if (size.has_value() && *size != world->size)
    return Bad(fmt::format("WORLD_SIZE={}, but {} started {} ranks: unset WORLD_SIZE", *size,
                           world->launcher, world->size));
  return *world;
}

}  // namespace

Result<World> DiscoverWorld(const EnvironmentVariables& environment, const WorldFlags& flags) {
  const Variables env(environment);
  Result<World> world = Discover(env, flags);
  if (world.ok()) world->secret = env.TextOr(kSecretVariable, world->secret);
  return world;
}

std::string Describe(const World& world) {
  std::string text = fmt::format("rank {} of {} ({}", world.rank, world.size, world.launcher);
  if (!world.address.empty())
    text += fmt::format(", {}:{}", EscapeControl(world.address), world.port);
  if (world.restarts > 0) text += fmt::format(", restart {}", world.restarts);
  return text + ")";
}

}  // namespace samara
