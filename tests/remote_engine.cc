// A learner process without learning, for the tests of remote actors: every slot plays episodes one
// after the other with actions that are a function of (episode, step). Prints one JSON object a
// second and at the end.
//
//   remote_engine ADDRESS key=value ...   keys: see main
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/log.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "core/signals.h"
#include "env/registry.h"
#include "fleet/remote/remote.h"

namespace samara {
namespace {

// Content of an episode, and how often which slot answered.
struct Played {
  std::vector<Sha256> digests;
  std::vector<uint64_t> steps;
  std::map<uint64_t, std::string> finished;
  uint64_t episodes = 0, lost = 0, events = 0, out_of_order = 0;
};

class Engine {
 public:
  Engine(Fleet& fleet, uint64_t episodes)
      : fleet_(fleet), episodes_(episodes), running_(fleet.slots()), last_(fleet.slots()) {
    played_.digests.resize(fleet.slots());
    played_.steps.resize(fleet.slots());
    values_.resize(static_cast<size_t>(fleet.spec().action.n));
  }

  void Begin(uint32_t slot, uint64_t episode) {
    running_[slot] = episode;
    last_[slot] = 0;
    played_.digests[slot] = Sha256();
    fleet_.Begin(slot, episode, {.seed = DeriveKey(17, Purpose::kEpisodeTest, 0, 0, episode)});
  }
  void BeginAll() {
    for (uint32_t s = 0; s < fleet_.slots() && next_ < episodes_; ++s) Begin(s, next_++);
  }

  void Take(const SlotEvent& event) {
    ++played_.events;
    using Kind = SlotEvent::Kind;
    if (event.episode != running_[event.slot]) ++played_.out_of_order;
    if (event.kind == Kind::kLost) {
      ++played_.lost;
      return Begin(event.slot, event.episode);
    }
    if (event.step != last_[event.slot]) ++played_.out_of_order;
    last_[event.slot] = event.step + 1;
    ++played_.steps[event.slot];
    uint64_t bits = 0;
    std::memcpy(&bits, &event.result.reward, sizeof bits);
    played_.digests[event.slot]
        .UpdateU64(bits)
        .UpdateU32(event.result.frames)
        .Update(fleet_.observation(event.slot));
    if (event.kind == Kind::kObservation) return Answer(event);
    ++played_.episodes;
    played_.finished[event.episode] = Hex(played_.digests[event.slot].Finish());
    if (next_ < episodes_) Begin(event.slot, next_++);
  }

  void Answer(const SlotEvent& event) {
    const ActionSpec& spec = fleet_.spec().action;
    const CounterRng rng(event.episode);
    if (spec.discrete) {
      const auto index = rng.UniformInt(event.step, static_cast<uint64_t>(spec.n));
      actions_.push_back({event.slot, {static_cast<int32_t>(index), {}}});
      return;
    }
    std::fill(values_.begin(), values_.end(), 0.25F);
    actions_.push_back({event.slot, {0, values_}});
  }
  void Flush() {
    fleet_.ActMany(actions_);
    actions_.clear();
  }
  bool done() const { return played_.episodes >= episodes_; }
  const Played& played() const { return played_; }

 private:
  Fleet& fleet_;
  const uint64_t episodes_;
  uint64_t next_ = 0;
  std::vector<uint64_t> running_;
  std::vector<uint32_t> last_;
  std::vector<float> values_;
  std::vector<SlotAction> actions_;
  Played played_;
};

uint64_t ResidentKb() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  unsigned long size = 0, resident = 0;
  if (file != nullptr) {
    if (std::fscanf(file, "%lu %lu", &size, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * 4;
}

nlohmann::json Show(Fleet& fleet, const Played& played, double seconds) {
  std::string hash;
  for (const auto& [episode, digest] : played.finished) hash += digest;
  return {{"seconds", seconds},
          {"live", fleet.live()},
          {"episodes", played.episodes},
          {"lost", played.lost},
          {"events", played.events},
          {"out_of_order", played.out_of_order},
          {"respawns", fleet.counters().respawns},
          {"drops", fleet.drops()},
          {"slot_steps", played.steps},
          {"resident_kb", ResidentKb()},
          {"hash", Sha256Hex(hash)}};
}

Status Run(RemoteFleetOptions options, std::map<std::string, std::string> keys) {
  const auto number = [&](const char* key, double otherwise) {
    return keys.contains(key) ? std::atof(keys[key].c_str()) : otherwise;
  };
  options.slots = static_cast<uint32_t>(number("slots", 4));
  options.incarnation = static_cast<uint64_t>(number("incarnation", 1));
  options.lease = number("lease", 10);
  options.heartbeat = number("heartbeat", 1);
  options.step_timeout = number("step_timeout", 60);
  options.quarantine = number("quarantine", 60);
  options.offences_max = static_cast<uint32_t>(number("offences_max", 10));
  options.insecure_i_know = number("insecure", 0) > 0;
  options.token_only = number("token_only", 0) > 0;
  if (keys.contains("token")) options.token_files.emplace_back(keys["token"]);
  if (keys.contains("token2")) options.token_files.emplace_back(keys["token2"]);
  options.certificate = keys["certificate"];
  options.key = keys["key"];
  options.client_ca = keys["client_ca"];
  options.reload = TakeReloadRequest;
  if (keys.contains("healthy"))
    options.healthy = [file = keys["healthy"]] { return std::ifstream(file).good(); };
  options.spec_timeout = number("spec_timeout", 60);
  if (keys.contains("env")) {
    ASSIGN_OR_RETURN(const auto factory, NativeEnvironment(keys["env"]));
    ASSIGN_OR_RETURN(const auto probe, factory());
    options.spec = probe->spec();
  }
  ASSIGN_OR_RETURN(RemoteFleet remote, MakeRemoteFleet(options));
  std::printf("%s\n", nlohmann::json{{"address", remote.address}}.dump().c_str());
  std::fflush(stdout);
  const auto episodes = static_cast<uint64_t>(number("episodes", 1e18));
  const double seconds = number("seconds", 1e9), print = number("print", 1);
  Engine engine(*remote.fleet, episodes);
  std::vector<SlotEvent> events(options.slots);
  const SteadyTime start = Now();
  double printed = 0;
  engine.BeginAll();
  while (!engine.done() && SecondsSince(start) < seconds && !StopRequested()) {
    const size_t n = remote.fleet->Wait(events, std::chrono::milliseconds(100));
    for (size_t i = 0; i < n; ++i) engine.Take(events[i]);
    engine.Flush();
    if (const double now = SecondsSince(start); now - printed >= print) {
      printed = now;
      std::printf("%s\n", Show(*remote.fleet, engine.played(), now).dump().c_str());
      std::fflush(stdout);
    }
  }
  if (number("shutdown", 1) > 0) remote.fleet->NotifyShutdown();
  auto last = Show(*remote.fleet, engine.played(), SecondsSince(start));
  last["done"] = engine.done();
  remote.fleet.reset();
  std::printf("%s\n", last.dump().c_str());
  return {};
}

}  // namespace
}  // namespace samara

int main(int argc, char** argv) {
  using namespace samara;
  InstallStopHandlers();
  InstallSignalHandlers();
  ReloadOnHangUp();
  const GracefulStop looked_at;
  RemoteFleetOptions options;
  options.address = argc > 1 ? argv[1] : "";
  std::map<std::string, std::string> keys;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t at = word.find('=');
    keys[word.substr(0, at)] = at == std::string::npos ? "" : word.substr(at + 1);
  }
  const Status status = Run(options, keys);
  if (!status.ok()) std::fprintf(stderr, "remote_engine: %s\n", status.message().c_str());
  return static_cast<int>(status.code());
}
