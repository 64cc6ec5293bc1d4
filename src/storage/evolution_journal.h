// Records that an evolution appends to its journal: one record per generation, enough to go on
// from; and while a generation takes longer than run.checkpoint_seconds, or is stopped, the
// episodes of it that are finished (FinishedEpisodes), so that they are not played again. First of
// all the reference batch, where the network has statistics.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "evo/algorithms/algorithm.h"
#include "storage/journal.h"

namespace samara {

// types in the journal
constexpr uint32_t kGenerationRecord = 1;
constexpr uint32_t kFinishedRecord = 2;
constexpr uint32_t kReferenceRecord = 3;  // the reference batch (evo/evaluate/reference.h)

struct GenerationRecord {
  std::string algorithm;  // the value of run.algorithm
  std::string state;      // EvolutionAlgorithm::EncodeState
  std::vector<double> fitness;
  double seconds = 0;     // running time so far, summed over resumes
  std::string metrics;    // its line of metrics.jsonl: written again when a crash lost it there
  std::string archive{};  // entries that it added (EvolutionAlgorithm::EncodeArchive)
  std::vector<float> positions{};  // GenerationReport::positions
  // Episodes of the population so far, and when they met the task's criterion (doc/metrics.md); 0 =
  // not yet.
  uint64_t evaluations = 0, solved_at = 0;

  std::string Encode() const;
  static Result<GenerationRecord> Decode(std::string_view bytes);  // kBadData
  // Summary of the state. kBadData when it is damaged, or when this program lacks the algorithm.
  Result<EvolutionSummary> Describe() const;
};

// The last generation in a journal; nothing before the first. kBadData: not a generation's record.
Result<std::optional<GenerationRecord>> LastGeneration(const JournalContents& journal);

struct FoundGeneration {
  GenerationRecord record;
  EvolutionSummary summary;
  std::string reference;  // of a network with statistics
};
// A generation of the run folder `run`; -1: the last. kNoInput when there is none such; kBadData
// when the journal is damaged, is missing or ends before the latest checkpoint: a resume mends
// that. kBadData too when nothing is left of a run that had saved generations.
Result<FoundGeneration> FindGeneration(const Path& run, int64_t generation = -1);

// Every generation of `run` up to `generation` (-1: all), in order, and each once. As
// FindGeneration.
Result<std::vector<GenerationRecord>> ReadGenerations(const Path& run, int64_t generation = -1);

}  // namespace samara
