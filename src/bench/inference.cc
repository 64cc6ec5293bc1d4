// Central inference without a network and without simulators: what the transport and the server
// cost by themselves, beside the bare means of the same transport.
//
// A native actor in another process, whose environments only copy a payload, plays against the
// inference server with a null model. The two kinds of a row take turns for kRounds rounds; figures
// are medians of the rounds. Batches are at most kBatch rows, as many as the bare ring keeps
// outstanding.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "bench/bench.h"
#include "bench/payload.h"
#include "core/thread.h"
#include "fleet/fleet.h"
#include "rl/inference_server.h"

namespace samara::bench {

using nlohmann::json;

namespace {

constexpr int kRounds = 5;
constexpr uint32_t kBatch = 64;

struct Setting {
  std::string transport;
  uint32_t payload = 0, streams = 0, rows_per_message = 1;
};

struct Measured {
  double rows_per_second = 0, p50_us = 0, p99_us = 0, cpu_us_per_row = 0;
};

// Of this process and of children that have ended.
double CpuSeconds() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    getrusage(who, &used);
    for (const timeval& t : {used.ru_utime, used.ru_stime})
      sum += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  }
  return sum;
}

// Copies rows, and notes the times that the environments report.
class MeasuredModel : public NullModel {
 public:
  using NullModel::NullModel;
  Status Infer(InferenceBatch& batch) override {
    for (const InferenceRow& row : batch.rows)
      if (row.reward > 0) latencies_.Add(static_cast<double>(row.reward));
    return NullModel::Infer(batch);
  }
  const Latencies& latencies() const { return latencies_; }

 private:
  Latencies latencies_;
};

Result<std::unique_ptr<Fleet>> MakePayloadFleet(const Setting& setting) {
  std::error_code failed;
  const Path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return Status(Code::kIoError, "/proc/self/exe: " + failed.message());
  ActorFleetOptions options;
  options.program = {self.string(), "bench", "inference", "--as-actor"};
  options.environment_json = json{{"kind", "payload"}, {"bytes", setting.payload}}.dump();
  options.slots = setting.streams;
  return MakeActorFleet(options);
}

Result<Measured> Serve(const Setting& setting, double seconds) {
  const double cpu = CpuSeconds();
  Measured result;
  uint64_t rows = 0;
  {
    ASSIGN_OR_RETURN(const auto fleet, MakePayloadFleet(setting));
    MeasuredModel model(setting.payload, kBatch);
    InferenceServer server(*fleet, model, nullptr, {.batch_max = kBatch},
                           {.next = [](uint32_t, uint64_t) { return EpisodeSpec{}; },
                            .ended = nullptr,
                            .shown = nullptr});
    Status status;
    {
      Thread serving("serve", [&] { status = server.Serve(); });
      const auto sleep = [](double s) {
        std::this_thread::sleep_for(std::chrono::duration<double>(s));
      };
      sleep(seconds / 10);  // warms up
      const uint64_t before = server.counters().rows;
      const SteadyTime start = Now();
      sleep(seconds);
      result.rows_per_second =
          static_cast<double>(server.counters().rows - before) / SecondsSince(start);
      server.Stop();
    }
    RETURN_IF_ERROR(status);
    rows = server.counters().rows;
    result.p50_us = model.latencies().Microseconds(0.5);
    result.p99_us = model.latencies().Microseconds(0.99);
  }
  if (rows == 0) return Status(Code::kUnavailable, "the actor answered nothing");
  result.cpu_us_per_row = 1e6 * (CpuSeconds() - cpu) / static_cast<double>(rows);
  return result;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Result<json> Row(const Setting& setting, double seconds) {
  std::vector<double> bare;
  std::vector<Measured> served;
  for (int round = 0; round < kRounds; ++round) {
    ASSIGN_OR_RETURN(const double rate, BareRing(setting.payload, std::min(setting.streams, kBatch),
                                                 seconds / kRounds));
    bare.push_back(rate);
    ASSIGN_OR_RETURN(const Measured measured, Serve(setting, seconds / kRounds));
    served.push_back(measured);
  }
  const auto median = [&](double Measured::*member) {
    std::vector<double> values;
    for (const Measured& m : served) values.push_back(m.*member);
    return Median(values);
  };
  const double rate = median(&Measured::rows_per_second), beside = Median(bare);
  return json{{"transport", setting.transport},
              {"payload_bytes", setting.payload},
              {"streams", setting.streams},
              {"rows_per_message", setting.rows_per_message},
              {"rows_per_second", rate},
              {"bare_rows_per_second", beside},
              {"ratio", rate / beside},
              {"p50_us", median(&Measured::p50_us)},
              {"p99_us", median(&Measured::p99_us)},
              {"cpu_us_per_row", median(&Measured::cpu_us_per_row)}};
}

std::string Line(const json& row) {
  return fmt::format(
      "{}, {} bytes, {} streams of {} rows: {:.0f} rows/s, bare {:.0f} ({:.2f}); p50 {:.0f} us, "
      "p99 "
      "{:.0f} us, {:.2f} us of processors a row",
      row["transport"].get<std::string>(), row["payload_bytes"].get<uint32_t>(),
      row["streams"].get<uint32_t>(), row["rows_per_message"].get<uint32_t>(),
      row["rows_per_second"].get<double>(), row["bare_rows_per_second"].get<double>(),
      row["ratio"].get<double>(), row["p50_us"].get<double>(), row["p99_us"].get<double>(),
      row["cpu_us_per_row"].get<double>());
}

}  // namespace

Result<json> Inference(const Options& options) {
  const auto chosen = [](const auto& given, auto all) { return given.empty() ? all : given; };
  const auto transports = chosen(options.transports, std::vector<std::string>{"shared"});
  for (const std::string& transport : transports)
    if (transport != "shared")
      return Status(Code::kUsage, "--transport " + transport + ": expected shared");
  json rows = json::array();
  for (const std::string& transport : transports) {
    for (const uint32_t payload :
         chosen(options.payloads, std::vector<uint32_t>{64, 7056, 28224})) {
      for (const uint32_t streams : chosen(options.streams, std::vector<uint32_t>{1, 64, 1000})) {
        ASSIGN_OR_RETURN(
            json row,
            Row({.transport = transport, .payload = payload, .streams = streams}, options.seconds));
        options.say(Line(row));
        rows.push_back(std::move(row));
      }
    }
  }
  return json{{"rows", std::move(rows)}, {"machine", Machine()}};
}

}  // namespace samara::bench
