// Numbers from the literature that a report shows for scale, and the human-normalised score.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace samara {

struct AtariScale {
  std::string_view game;
  double random, human;  // mean returns
  // 0 = as good as random play, 1 = as a human.
  double Normalised(double score) const { return (score - random) / (human - random); }
};

struct PublishedScore {
  std::string_view game, method;
  double score;
  std::string_view source;
};

// The game by its ROM name ("frostbite"); nothing for games outside the 57.
std::optional<AtariScale> ScaleOfGame(std::string_view game);
std::vector<PublishedScore> PublishedScores(std::string_view game);

}  // namespace samara
