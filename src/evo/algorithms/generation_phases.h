// Phases of a generation that algorithms share: the population plays, then a policy is validated
// and tested. Functions; an algorithm's Step calls them in its order and adds its update.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/sha256.h"
#include "evo/algorithms/algorithm.h"

namespace samara {

// Keys of the noise of the members, or pairs, that play next: each its own.
std::vector<uint64_t> NoiseKeys(const GenerationPlayer& player, uint64_t count);
// Episodes 0 to `episodes` - 1 of each member, member by member.
std::vector<Task> PopulationTasks(const GenerationPlayer& player, uint64_t members,
                                  size_t episodes);
// The parameters of member i, `count` numbers.
std::vector<float> MemberOf(const ParameterSource& members, uint64_t i, size_t count);

// Plays `tasks`, `episodes` of each member in order, and adds them to the counters of `next`, their
// time to `report`. `reduce`: what GenerationPlan says. kTryAgain: stopped.
Result<std::vector<EpisodeResult>> PlayMembers(GenerationPlayer& player, std::vector<Task> tasks,
                                               size_t episodes, const ParameterSource& members,
                                               size_t episodes_total, const StopToken& stop,
                                               EvolutionCounters& next, GenerationReport& report,
                                               std::function<void(EpisodeResult&)> reduce = {});
// Mean fitness of each member.
std::vector<double> MeanFitness(std::span<const EpisodeResult> played, size_t episodes);
// The mean fitness less `shift` for each step: without a bonus of staying alive.
std::vector<double> ShiftedFitness(std::vector<double> fitness,
                                   std::span<const EpisodeResult> played, double shift);

// Tests a policy on fresh episodes that count for nothing, and adds them to `next` and `report`.
// kTryAgain: stopped.
Status TestPolicy(GenerationPlayer& player, std::span<const float> policy, size_t episodes,
                  const StopToken& stop, EvolutionCounters& next, GenerationReport& report);
// Validates the new centre as `individual` and tests it on fresh episodes that count for nothing;
// adds both to `next`, their time to `report`. The mean of the validation. kTryAgain: stopped.
Result<double> ValidateAndTest(GenerationPlayer& player, std::span<const float> centre,
                               uint32_t individual, size_t validation_episodes,
                               size_t test_episodes, const StopToken& stop, EvolutionCounters& next,
                               GenerationReport& report);

// Sets the frames of the generation that `player` has played: all that count, and those of episodes
// that an earlier start had finished.
void SetFrames(const GenerationPlayer& player, uint64_t frames, GenerationReport& report);

// SHA-256 over the bits of fitness and centre.
Digest HashOf(std::span<const double> fitness, std::span<const float> centre);

// The counters in a state's bytes.
void PutCounters(ByteWriter& out, const EvolutionCounters& counters);
EvolutionCounters GetCounters(ByteReader& in);

}  // namespace samara
