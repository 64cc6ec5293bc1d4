// Central inference without simulators: what the transport and the server cost by themselves,
// compared with the bare means of the same transport.
//
// Actors in another process, whose environments only copy a payload, play against the inference
// server with a null model, or with an untrained network: over shared memory next to a bare ring,
// over gRPC next to a bare streaming echo. The two kinds of a row alternate for kInferenceRounds
// rounds; figures are medians of the rounds, the ratio that of the rounds' ratios. Over shared
// memory batches are at most kBatch rows, as many as the bare ring keeps outstanding.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "bench/bench.h"
#include "bench/payload.h"
#include "bench/peer.h"
#include "core/log.h"
#include "core/statistics.h"
#include "core/thread.h"
#include "fleet/fleet.h"
#include "fleet/remote/remote.h"
#include "rl/algorithms/registry.h"
#include "rl/inference/batch_size.h"
#include "rl/inference/inference_server.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr int kInferenceRounds = 5;
constexpr uint32_t kBatch = 64, kBatchMax = 1024;
constexpr double kConnectMax = 60;  // s until all streams are there
constexpr std::chrono::seconds kPeerMax{60};
constexpr size_t kActionBytes = 48;  // of a row of commands (fleet/remote/wire.h)

struct Setting {
  std::string transport;
  uint32_t payload = 0, streams = 0, rows_per_message = 1;

  bool shared() const { return transport == "shared"; }
  uint32_t slots() const { return streams * rows_per_message; }
  // Half of the slots a batch, so that the other half is on its way.
  uint32_t batch() const { return std::clamp(slots() / 2, kBatch, shared() ? kBatch : kBatchMax); }
};

// Where streams meet: a folder for sockets and certificates.
struct Place {
  std::unique_ptr<Scratch> folder;
  Path certificate, key, ca;  // TLS
};

struct Measured {
  double rows_per_second = 0, p50_us = 0, p99_us = 0, cpu_us_per_row = 0;
};

// CPU time of this process and of its present children.
double CpuSeconds() {
  static const long ticks = sysconf(_SC_CLK_TCK);
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  double sum = 0;
  for (const timeval& t : {used.ru_utime, used.ru_stime})
    sum += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", failed)) {
    if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos)
      continue;
    // a process that has just ended gives an error instead of its line
    std::ifstream file(entry.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    // after the name, which may hold anything: state, parent, ..., user and system time (14th,
    // 15th)
    std::istringstream in(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
    std::vector<std::string> fields{std::istream_iterator<std::string>(in), {}};
    if (fields.size() < 13 || fields[1] != std::to_string(getpid())) continue;
    sum += (std::stod(fields[11]) + std::stod(fields[12])) / static_cast<double>(ticks);
  }
  return sum;
}

// A model that notes the times that the environments report.
class MeasuredModel : public Model {
 public:
  explicit MeasuredModel(Model& model) : model_(model) {}
  const ModelShape& shape() const override { return model_.shape(); }
  bool Has(uint64_t version) const override { return model_.Has(version); }
  Status Infer(InferenceBatch& batch) override {
    for (const InferenceRow& row : batch.rows)
      if (row.reward > 0) latencies_.Add(static_cast<double>(row.reward));
    return model_.Infer(batch);
  }
  const Latencies& latencies() const { return latencies_; }

 private:
  Model& model_;
  Latencies latencies_;
};

constexpr std::string_view kNull = "null";

Result<std::unique_ptr<Model>> MakeModel(const std::string& name, const Setting& setting,
                                         uint32_t rows_max) {
  // a row is copied once, as by the bare means: out of the actor's memory, or out of gRPC's by the
  // fleet
  if (name == kNull)
    return std::unique_ptr<Model>(
        std::make_unique<NullModel>(setting.payload, setting.shared() ? rows_max : 0));
  AgentSetup setup;
  ChooseAlgorithm(setup.config, "vtrace");
  setup.config.network.name = name;
  setup.environment = PayloadSpec(setting.payload);
  setup.slots = std::max(setting.slots(), rows_max);
  setup.rows_max = rows_max;
  ASSIGN_OR_RETURN(std::unique_ptr<Agent> agent, MakeAgent(setup));
  return std::unique_ptr<Model>(std::move(agent));
}

Result<Place> MakePlace(const Setting& setting) {
  Place place;
  if (setting.shared()) return place;
  ASSIGN_OR_RETURN(place.folder, Scratch::Make());
  if (setting.transport != "tls") return place;
  const Path folder = place.folder->path() / "tls";
  ASSIGN_OR_RETURN(const auto child,
                   Child::Start({"certificates", folder.string(), "--host", "127.0.0.1"}));
  RETURN_IF_ERROR(child->Wait(kPeerMax));
  place.certificate = folder / "engine.pem", place.key = folder / "engine.key";
  place.ca = folder / "ca.pem";
  return place;
}

std::string AddressOf(const Setting& setting, const Place& place, const char* socket) {
  if (setting.transport != "unix") return "127.0.0.1:0";
  return "unix:" + (place.folder->path() / socket).string();
}

Result<std::unique_ptr<Child>> StartPeer(const Setting& setting, const Place& place,
                                         const char* kind, const std::string& address) {
  return Child::Start({"bench", "inference", "--as-peer",
                       ToJson(PeerTask{.kind = kind,
                                       .address = address,
                                       .ca = place.ca.string(),
                                       .payload = setting.payload,
                                       .streams = setting.streams,
                                       .rows = setting.rows_per_message})
                           .dump()});
}

// The engine's end, with everybody connected.
struct Engine {
  std::unique_ptr<Fleet> fleet;
  std::unique_ptr<Child> peer;  // of remote actors
};

Result<Engine> MakeEngine(const Setting& setting, const Place& place) {
  Engine engine;
  if (setting.shared()) {
    ASSIGN_OR_RETURN(const std::string program, OwnProgram());
    ActorFleetOptions options;
    options.program = {program, "bench", "inference", "--as-peer",
                       ToJson(PeerTask{.kind = "slots"}).dump()};
    options.environment_json = json{{"kind", "payload"}, {"bytes", setting.payload}}.dump();
    options.slots = setting.slots();
    ASSIGN_OR_RETURN(engine.fleet, MakeActorFleet(options));
    return engine;
  }
  RemoteFleetOptions options;
  options.address = AddressOf(setting, place, "engine");
  options.spec = PayloadSpec(setting.payload);
  options.slots = setting.slots();
  options.certificate = place.certificate, options.key = place.key;
  ASSIGN_OR_RETURN(RemoteFleet remote, MakeRemoteFleet(options));
  engine.fleet = std::move(remote.fleet);
  ASSIGN_OR_RETURN(engine.peer, StartPeer(setting, place, "remote", remote.address));
  const SteadyTime start = Now();
  while (engine.fleet->live() < setting.slots()) {
    if (SecondsSince(start) > kConnectMax)
      return Status(Code::kUnavailable,
                    fmt::format("{} of {} slots came within {} s", engine.fleet->live(),
                                setting.slots(), kConnectMax));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return engine;
}

void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

Result<Measured> Serve(const Setting& setting, const Place& place, Model& network, double seconds) {
  Measured result;
  uint64_t rows = 0;
  {
    ASSIGN_OR_RETURN(const Engine engine, MakeEngine(setting, place));
    MeasuredModel model(network);
    InferenceServer server(*engine.fleet, model, nullptr, {.batch_max = setting.batch()},
                           {.next = [](uint32_t, uint64_t) { return EpisodeSpec{}; },
                            .ended = nullptr,
                            .shown = nullptr});
    Status status;
    {
      ThreadGroup serving([&] { server.Stop(); });
      RETURN_IF_ERROR(serving.Start("serve", 1, [&](size_t) { status = server.Serve(); }));
      for (const SteadyTime began = Now();
           server.counters().rows == 0 && SecondsSince(began) < kConnectMax;)
        Sleep(0.001);
      Sleep(seconds / 10);  // warms up
      const uint64_t before = server.counters().rows;
      const double cpu = CpuSeconds();
      const SteadyTime start = Now();
      Sleep(seconds);
      const auto done = static_cast<double>(server.counters().rows - before);
      result.rows_per_second = done / SecondsSince(start);
      result.cpu_us_per_row = 1e6 * (CpuSeconds() - cpu) / std::max(1.0, done);
    }
    RETURN_IF_ERROR(status);
    engine.fleet->NotifyShutdown();
    if (engine.peer != nullptr) RETURN_IF_ERROR(engine.peer->Wait(kPeerMax));
    rows = server.counters().rows;
    result.p50_us = model.latencies().Microseconds(0.5);
    result.p99_us = model.latencies().Microseconds(0.99);
  }
  if (rows == 0) return Status(Code::kUnavailable, "the actor answered nothing");
  return result;
}

struct Bare {
  double rows_per_second = 0;
  double cpu_us_per_row = 0;  // 0: not measured
};

// The bare streaming echo: as many streams with messages of the same bytes.
Result<Bare> BareEcho(const Setting& setting, const Place& place, double seconds) {
  std::unique_ptr<Child> peer;
  ASSIGN_OR_RETURN(auto server,
                   EchoServer::Listen(AddressOf(setting, place, "echo"), place.certificate,
                                      place.key, setting.payload, kActionBytes));
  ASSIGN_OR_RETURN(peer, StartPeer(setting, place, "echo", server->address()));
  const SteadyTime came = Now();
  while (server->messages() < setting.streams) {
    if (SecondsSince(came) > kConnectMax)
      return Status(Code::kUnavailable, "the streams of the bare echo do not come");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Sleep(seconds / 10);
  const uint64_t before = server->messages();
  const double cpu = CpuSeconds();
  const SteadyTime start = Now();
  Sleep(seconds);
  const double rows = static_cast<double>(server->messages() - before) * setting.rows_per_message;
  const double rate = rows / SecondsSince(start);
  const double spent = CpuSeconds() - cpu;
  server.reset();
  RETURN_IF_ERROR(peer->Wait(kPeerMax));
  return Bare{rate, 1e6 * spent / std::max(1.0, rows)};
}

Result<Bare> MeasureBare(const Setting& setting, const Place& place, double seconds) {
  if (!setting.shared()) return BareEcho(setting, place, seconds);
  ASSIGN_OR_RETURN(const double rate,
                   BareRing(setting.payload, std::min(setting.streams, kBatch), seconds));
  return Bare{rate, 0};
}

// `bare_cpu_us` of processors a row, for people: the contract of scripts has no place for it.
Result<json> Row(const Setting& setting, const std::string& model, double seconds,
                 double& bare_cpu_us) {
  ASSIGN_OR_RETURN(const Place place, MakePlace(setting));
  ASSIGN_OR_RETURN(const std::unique_ptr<Model> network,
                   MakeModel(model, setting, setting.batch()));
  std::vector<double> bare, bare_cpu, ratios;
  std::vector<Measured> served;
  for (int round = 0; round < kInferenceRounds; ++round) {
    const double turn = seconds / kInferenceRounds;
    ASSIGN_OR_RETURN(const Bare alone, MeasureBare(setting, place, turn));
    bare.push_back(alone.rows_per_second);
    bare_cpu.push_back(alone.cpu_us_per_row);
    ASSIGN_OR_RETURN(const Measured measured, Serve(setting, place, *network, turn));
    served.push_back(measured);
    ratios.push_back(measured.rows_per_second / alone.rows_per_second);
  }
  const auto median = [&](double Measured::*member) {
    std::vector<double> values;
    values.reserve(served.size());
    for (const Measured& m : served) values.push_back(m.*member);
    return Median(values);
  };
  bare_cpu_us = Median(bare_cpu);
  return json{{"transport", setting.transport},
              {"payload_bytes", setting.payload},
              {"streams", setting.streams},
              {"rows_per_message", setting.rows_per_message},
              {"rows_per_second", median(&Measured::rows_per_second)},
              {"bare_rows_per_second", Median(bare)},
              {"ratio", Median(ratios)},
              {"p50_us", median(&Measured::p50_us)},
              {"p99_us", median(&Measured::p99_us)},
              {"cpu_us_per_row", median(&Measured::cpu_us_per_row)}};
}

std::string Line(const json& row, double bare_cpu_us) {
  const std::string bare_text = bare_cpu_us > 0 ? fmt::format(", bare {:.2f}", bare_cpu_us) : "";
  return fmt::format(
      "{}, {} bytes, {} streams of {} rows: {:.0f} rows/s, bare {:.0f} ({:.2f}); p50 {:.0f} us, "
      "p99 {:.0f} us, {:.2f} us of processors a row{}",
      row["transport"].get<std::string>(), row["payload_bytes"].get<uint32_t>(),
      row["streams"].get<uint32_t>(), row["rows_per_message"].get<uint32_t>(),
      row["rows_per_second"].get<double>(), row["bare_rows_per_second"].get<double>(),
      row["ratio"].get<double>(), row["p50_us"].get<double>(), row["p99_us"].get<double>(),
      row["cpu_us_per_row"].get<double>(), bare_text);
}

// Settings that a run without options measures.
std::vector<Setting> Defaults() {
  std::vector<Setting> all;
  for (const uint32_t payload : {64, 7056, 28224})
    for (const uint32_t streams : {1, 64, 1000}) all.push_back({"shared", payload, streams, 1});
  const std::string sockets = "unix";
  all.push_back({sockets, 64, 64, 1});
  all.push_back({sockets, 64, 4, 512});
  for (const uint32_t streams : {1, 64, 1000}) all.push_back({sockets, 7056, streams, 1});
  all.push_back({sockets, 7056, 64, 8});
  for (const uint32_t streams : {64, 1000}) all.push_back({sockets, 28224, streams, 1});
  for (const char* transport : {"tcp", "tls"})
    for (const uint32_t rows : {1, 8}) all.push_back({transport, 7056, 64, rows});
  return all;
}

constexpr const char* kTransports[] = {"shared", "unix", "tcp", "tls"};

// Settings that the options select: every combination of their values.
Result<std::vector<Setting>> Chosen(const Options& options) {
  const auto or_else = [](const auto& given, auto usual) { return given.empty() ? usual : given; };
  const auto rows = options.rows_per_message;
  const auto transports = or_else(options.transports, std::vector<std::string>{"shared"});
  for (const std::string& transport : transports) {
    if (std::ranges::find(kTransports, transport) == std::end(kTransports))
      return Status(Code::kUsage, "--transport " + transport + ": expected one of " +
                                      fmt::format("{}", fmt::join(kTransports, ", ")));
    const bool many = std::ranges::any_of(rows, [](uint32_t n) { return n > 1; });
    if (transport == "shared" && many)
      return Status(Code::kUsage,
                    "--rows-per-message: a slot of shared memory holds one row: expected 1");
  }
  const bool null = options.model == kNull;
  for (const uint32_t payload : options.payloads)
    if (!null && payload != kFrameBytes && payload != 4 * kFrameBytes)
      return Status(Code::kUsage, fmt::format("--payload {}: a network looks at frames: expected "
                                              "{} or {}",
                                              payload, kFrameBytes, 4 * kFrameBytes));
  if (null && options.payloads.empty() && options.streams.empty() && rows.empty()) {
    std::vector<Setting> all = Defaults();
    std::erase_if(all, [&](const Setting& s) {
      return !options.transports.empty() &&
             std::ranges::find(options.transports, s.transport) == options.transports.end();
    });
    return all;
  }
  std::vector<Setting> all;
  for (const std::string& transport : transports)
    for (const uint32_t payload : or_else(options.payloads, std::vector<uint32_t>{7056}))
      for (const uint32_t streams : or_else(options.streams, std::vector<uint32_t>{64}))
        for (const uint32_t n : or_else(rows, std::vector<uint32_t>{1}))
          all.push_back({transport, payload, streams, n});
  return all;
}

// Measures the curve by which a run chooses its batch (rl/inference/batch_size.h).
Result<json> BatchCurve(const Options& options) {
  const Setting setting{"shared", kFrameBytes, kBatch, 1};
  ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, MakeModel(options.model, setting, kBatch));
  ASSIGN_OR_RETURN(const BatchChoice choice, MeasureBatches(*model, kBatch, options.seconds / 8));
  options.say("a run of as many environments would batch " + ToText(choice));
  json curve = json::array();
  for (const BatchPoint& point : choice.curve)
    curve.push_back({{"rows", point.rows},
                     {"milliseconds", point.milliseconds},
                     {"cost", BatchCost(point)},
                     {"chosen", point.rows == choice.rows}});
  return curve;
}

}  // namespace

Result<json> DeviceInference(const Options& options);

Result<json> Inference(const Options& options) {
  if (!options.device.empty()) return DeviceInference(options);
  ASSIGN_OR_RETURN(std::vector<Setting> settings, Chosen(options));
  json rows = json::array();
  SetLogLevel(LogLevel::kError);  // a thousand actors come and go
  for (const Setting& setting : settings) {
    if (!setting.shared() && GrpcVersion().empty()) {
      options.say(setting.transport + ": this build has no gRPC");
      continue;
    }
    double bare_cpu_us = 0;
    Result<json> row = Row(setting, options.model, options.seconds, bare_cpu_us);
    if (!row.ok()) {
      SetLogLevel(LogLevel::kInfo);
      return row.status();
    }
    options.say(Line(*row, bare_cpu_us));
    rows.push_back(std::move(*row));
  }
  SetLogLevel(LogLevel::kInfo);
  json result = {{"rows", std::move(rows)}, {"model", options.model}, {"machine", Machine()}};
  if (options.model != kNull) {
    ASSIGN_OR_RETURN(result["batch_curve"], BatchCurve(options));
  }
  return result;
}

}  // namespace samara::bench
