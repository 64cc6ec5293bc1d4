#include "evo/algorithms/cma.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/bytes.h"
#include "core/math.h"
#include "evo/algorithms/centre_generation.h"
#include "evo/algorithms/separable.h"
#include "evo/algorithms/shaping.h"
#include "evo/genome/noise.h"

namespace samara {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kParametersMax = 2000;  // a record holds half the square of them, 16 MB

// Begin of row i in a lower triangle.
constexpr size_t Row(size_t i) { return i * (i + 1) / 2; }

class CmaConfig : public EvolutionConfig {
 public:
  SeparableSettings members{.population = 32};
  double sigma = 0.1;  // of the first population

  std::unique_ptr<EvolutionConfig> Clone() const override {
    return std::make_unique<CmaConfig>(*this);
  }
  void Bind(ConfigTable& table) override {
    members.Bind(table, "cma");
    table.Add("cma.sigma", &sigma, {1e-12, 1e6}, "", "first step size");
    BindTest(table, "cma", budget);
    BindBudget(table, "cma", budget);
  }
  std::string table() const override { return "cma"; }
  bool TakesInitialPolicy() const override { return true; }
  Status Check(const NetworkDescription& network) const override {
    if (network.parameter_count > kParametersMax)
      return {Code::kConfig,
              fmt::format("{}: {} parameters; expected at most {} for cma-es, whose covariance has "
                          "their square; sep-cma-es has only its diagonal",
                          network.name, network.parameter_count, kParametersMax)};
    return members.Check(network, "cma");
  }
  std::unique_ptr<EvolutionAlgorithm> Make(const EvolutionSetup& setup) const override;
};

struct CmaState : EvolutionCounters {
  std::vector<float> mean;
  std::vector<double> covariance;  // lower triangle
  std::vector<double> path_sigma, path_c;
  double sigma = 0;
  double centre_mean = 0;
  Digest population_hash{};

  EvolutionSummary Summary() const {
    return {EvolutionCounters(*this), population_hash, mean, centre_mean};
  }
  std::string Encode() const {
    ByteWriter out;
    out.Put(kVersion);
    PutCounters(out, *this);
    PutFloats(out, mean);
    for (const auto* values : {&covariance, &path_sigma, &path_c})
      out.PutBytes(
          {reinterpret_cast<const char*>(values->data()), values->size() * sizeof(double)});
    out.Put(sigma).Put(centre_mean).Put(population_hash);
    return out.Take();
  }
  static Result<CmaState> Decode(std::string_view bytes) {
    const Status damaged(Code::kBadData, "the recorded state of the evolution is damaged");
    ByteReader in(bytes);
    CmaState s;
    if (in.Get<uint32_t>() != kVersion) return damaged;
    static_cast<EvolutionCounters&>(s) = GetCounters(in);
    if (!GetFloats(in, s.mean)) return damaged;
    for (auto* values : {&s.covariance, &s.path_sigma, &s.path_c}) {
      const std::string_view part = in.GetBytes();
      if (part.size() % sizeof(double) != 0) return damaged;
      values->resize(part.size() / sizeof(double));
      if (!part.empty()) std::memcpy(values->data(), part.data(), part.size());
    }
    s.sigma = in.Get<double>();
    s.centre_mean = in.Get<double>();
    s.population_hash = in.Get<Digest>();
    if (!in.AtEnd()) return damaged;
    return s;
  }
};

class CmaEs : public EvolutionAlgorithm {
 public:
  CmaEs(const CmaConfig& config, const EvolutionSetup& setup)
      : EvolutionAlgorithm(setup),
        config_(config),
        n_(setup.network.evolved_count),
        constants_(static_cast<size_t>(config.members.population), n_, false),
        noise_(GetNoise(config.members.noise)) {
    state_.mean = ZeroParameters();
    state_.covariance.resize(Row(n_));
    for (size_t i = 0; i < n_; ++i) state_.covariance[Row(i) + i] = 1;
    state_.path_sigma.resize(n_), state_.path_c.resize(n_);
    state_.sigma = config.sigma;
    factor_ = state_.covariance;  // the identity
  }

  Result<GenerationReport> Step(const StopToken& stop) override {
    CmaState next = state_;
    ++next.generation;
    GenerationReport report;

    // 1 every member plays mean + sigma A z
    const auto members = static_cast<uint32_t>(config_.members.population);
    const auto episodes = static_cast<size_t>(config_.members.episodes);
    std::vector<uint64_t> keys;
    std::vector<Task> tasks;
    for (uint32_t i = 0; i < members; ++i) {
      keys.push_back(player_.Key(Purpose::kMutation, i));
      for (size_t e = 0; e < episodes; ++e) tasks.push_back(player_.PopulationTask(i, e));
    }
    ASSIGN_OR_RETURN(const auto played,
                     PlayMembers(player_, std::move(tasks), episodes, Members(*this, keys),
                                 EpisodesOfNext(), stop, next, report));
    report.fitness = MeanFitness(played, episodes);

    // 2 mean, paths, covariance and step size move
    Move(report.fitness, keys, next);

    // 3 validation of the new mean; 4 its test
    ASSIGN_OR_RETURN(
        next.centre_mean,
        ValidateAndTest(player_, next.mean, members,
                        static_cast<size_t>(config_.members.validation_episodes),
                        config_.budget.TestEpisodes(next.generation), stop, next, report));

    // 5 the caller makes the new state durable before it reports the generation
    next.population_hash = HashOf(report.fitness, next.mean);
    report.frames = next.frames - state_.frames;
    report.metrics = {{"step_size", next.sigma}};
    report.note = fmt::format("step size {:.2g}", next.sigma);
    RETURN_IF_ERROR(Take(std::move(next)));
    return report;
  }

  size_t EpisodesOfNext() const override {
    const SeparableSettings& m = config_.members;
    return static_cast<size_t>(m.population * m.episodes + m.validation_episodes) +
           config_.budget.TestEpisodes(state_.generation + 1);
  }
  std::string EncodeState() const override { return state_.Encode(); }
  Status RestoreState(std::string_view bytes) override {
    ASSIGN_OR_RETURN(CmaState state, CmaState::Decode(bytes));
    if (state.mean.size() != state_.mean.size() || state.covariance.size() != Row(n_) ||
        state.path_sigma.size() != n_ || state.path_c.size() != n_)
      return {Code::kBadData, "the recorded state is of another network"};
    return Take(std::move(state));
  }
  EvolutionSummary summary() const override { return state_.Summary(); }

 private:
  class Members : public ParameterSource {
   public:
    Members(const CmaEs& es, std::span<const uint64_t> keys) : es_(es), keys_(keys) {}
    void Write(PolicyHandle policy, std::span<float> canonical) const override {
      std::vector<float> z(es_.n_);
      es_.noise_.Fill(keys_[policy.id], 0, z);
      std::ranges::copy(es_.state_.mean, canonical.begin());
      for (size_t i = 0; i < z.size(); ++i)
        canonical[i] = static_cast<float>(canonical[i] + es_.state_.sigma * es_.Times(z, i));
    }

   private:
    const CmaEs& es_;
    const std::span<const uint64_t> keys_;
  };

  // Element i of A z.
  double Times(std::span<const float> z, size_t i) const {
    double sum = 0;
    for (size_t j = 0; j <= i; ++j) sum += factor_[Row(i) + j] * z[j];
    return sum;
  }

  Status Take(CmaState state) {
    state_ = std::move(state);
    player_.StartAfter(state_.generation, state_.frames);
    return Factor();
  }

  // A from the covariance; what rounding has made indefinite gets a larger diagonal.
  Status Factor() {
    double diagonal = 0;
    for (size_t i = 0; i < n_; ++i) diagonal = std::max(diagonal, state_.covariance[Row(i) + i]);
    double more = 0;
    for (int trial = 0; trial < 20; ++trial, more = std::max(1e-14 * diagonal, 10 * more)) {
      factor_ = state_.covariance;
      for (size_t i = 0; i < n_; ++i) factor_[Row(i) + i] += more;
      if (CholeskyInPlace(factor_, n_)) return Status::Ok();
    }
    return {Code::kBadData, "the covariance of the recorded state is not positive definite"};
  }

  void Move(std::span<const double> fitness, std::span<const uint64_t> keys, CmaState& next) const {
    const CmaConstants& c = constants_;
    const std::vector<double> w = ByPlace(fitness, c.weights);
    // 1 steps y = A z of the members that count, and their weighted means
    std::vector<double> mean_z(n_), mean_y(n_), y(n_);
    std::vector<double> spread(Row(n_));  // sum w y y^T
    std::vector<float> z(n_);
    for (size_t k = 0; k < keys.size(); ++k) {
      if (w[k] == 0) continue;
      noise_.Fill(keys[k], 0, z);
      for (size_t i = 0; i < n_; ++i) {
        y[i] = Times(z, i);
        mean_z[i] += w[k] * z[i], mean_y[i] += w[k] * y[i];
      }
      for (size_t i = 0; i < n_; ++i)
        for (size_t j = 0; j <= i; ++j) spread[Row(i) + j] += w[k] * y[i] * y[j];
    }
    // 2 the mean, and the path of the step size
    double length = 0;
    for (size_t i = 0; i < n_; ++i) {
      next.mean[i] = static_cast<float>(next.mean[i] + next.sigma * mean_y[i]);
      next.path_sigma[i] = (1 - c.c_sigma) * next.path_sigma[i] +
                           std::sqrt(c.c_sigma * (2 - c.c_sigma) * c.mu_eff) * mean_z[i];
      length += next.path_sigma[i] * next.path_sigma[i];
    }
    length = std::sqrt(length);
    // 3 the covariance and its path
    const bool goes = CmaPathGoes(c, n_, length, next.generation);
    const double path = goes ? std::sqrt(c.c_c * (2 - c.c_c) * c.mu_eff) : 0;
    for (size_t i = 0; i < n_; ++i)
      next.path_c[i] = (1 - c.c_c) * next.path_c[i] + path * mean_y[i];
    const double kept = 1 - c.c_1 - c.c_mu + (goes ? 0 : c.c_1 * c.c_c * (2 - c.c_c));
    for (size_t i = 0; i < n_; ++i)
      for (size_t j = 0; j <= i; ++j)
        next.covariance[Row(i) + j] = kept * next.covariance[Row(i) + j] +
                                      c.c_1 * next.path_c[i] * next.path_c[j] +
                                      c.c_mu * spread[Row(i) + j];
    // 4 the step size
    next.sigma *= Exp(std::min(1.0, c.c_sigma / c.d_sigma * (length / c.chi - 1)));
  }

  const CmaConfig config_;
  const size_t n_;
  const CmaConstants constants_;
  const Noise& noise_;
  CmaState state_;              // constant while episodes are played, like
  std::vector<double> factor_;  // A, of its covariance
};

std::unique_ptr<EvolutionAlgorithm> CmaConfig::Make(const EvolutionSetup& setup) const {
  return std::make_unique<CmaEs>(*this, setup);
}

}  // namespace

CmaConstants::CmaConstants(size_t lambda, size_t parameters, bool separable) : weights(lambda) {
  const auto n = static_cast<double>(parameters);
  double sum = 0, squares = 0;
  for (size_t p = 0; p < lambda / 2; ++p) {
    weights[p] = Log((static_cast<double>(lambda) + 1) / 2) - Log(static_cast<double>(p + 1));
    sum += weights[p];
  }
  for (double& w : weights) w /= sum, squares += w * w;
  mu_eff = 1 / squares;
  c_sigma = (mu_eff + 2) / (n + mu_eff + 5);
  d_sigma = 1 + 2 * std::max(0.0, std::sqrt((mu_eff - 1) / (n + 1)) - 1) + c_sigma;
  c_c = std::min(1.0, (4 + mu_eff / n) / (n + 4 + 2 * mu_eff / n));
  const double factor = separable ? (n + 2) / 3 : 1;
  c_1 = std::min(1.0, factor * 2 / ((n + 1.3) * (n + 1.3) + mu_eff));
  c_mu = std::min(1 - c_1, factor * 2 * (mu_eff - 2 + 1 / mu_eff) / ((n + 2) * (n + 2) + mu_eff));
  chi = std::sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n));
}

bool CmaPathGoes(const CmaConstants& c, size_t n, double path_length, uint64_t generation) {
  double decay = 1;
  for (uint64_t g = 0; g < 2 * std::min<uint64_t>(generation, 10'000); ++g) decay *= 1 - c.c_sigma;
  return path_length / std::sqrt(1 - decay) < (1.4 + 2 / (static_cast<double>(n) + 1)) * c.chi;
}

bool CholeskyInPlace(std::vector<double>& a, size_t n) {
  for (size_t j = 0; j < n; ++j) {
    double* const row_j = a.data() + Row(j);
    double diagonal = row_j[j];
    for (size_t k = 0; k < j; ++k) diagonal -= row_j[k] * row_j[k];
    if (!(diagonal > 0)) return false;
    row_j[j] = std::sqrt(diagonal);
    for (size_t i = j + 1; i < n; ++i) {
      double* const row_i = a.data() + Row(i);
      double sum = row_i[j];
      for (size_t k = 0; k < j; ++k) sum -= row_i[k] * row_j[k];
      row_i[j] = sum / row_j[j];
    }
  }
  return true;
}

std::unique_ptr<EvolutionConfig> MakeCmaConfig() { return std::make_unique<CmaConfig>(); }

Result<EvolutionSummary> DescribeCma(std::string_view state) {
  ASSIGN_OR_RETURN(const CmaState s, CmaState::Decode(state));
  return s.Summary();
}

}  // namespace samara
