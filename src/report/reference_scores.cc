#include "report/reference_scores.h"

#include <algorithm>

namespace samara {
namespace {

constexpr const char* kPaper = "Such et al. 2017, Deep Neuroevolution";
constexpr const char* kReproduction = "single runs of the released code (UBC report)";

// Random and human play, no-op starts: the table of the 57 games that Agent57's authors and others
// use. Video Pinball's random score is 0 here; 16,256.9 is in circulation too. Medians over games
// agree with both, published means only with 0.
constexpr AtariScale kAtari57[] = {
    {"alien", 227.8, 7127.7},
    {"amidar", 5.8, 1719.5},
    {"assault", 222.4, 742.0},
    {"asterix", 210.0, 8503.3},
    {"asteroids", 719.1, 47388.7},
    {"atlantis", 12850.0, 29028.1},
    {"bank_heist", 14.2, 753.1},
    {"battle_zone", 2360.0, 37187.5},
    {"beam_rider", 363.9, 16926.5},
    {"berzerk", 123.7, 2630.4},
    {"bowling", 23.1, 160.7},
    {"boxing", 0.1, 12.1},
    {"breakout", 1.7, 30.5},
    {"centipede", 2090.9, 12017.0},
    {"chopper_command", 811.0, 7387.8},
    {"crazy_climber", 10780.5, 35829.4},
    {"defender", 2874.5, 18688.9},
    {"demon_attack", 152.1, 1971.0},
    {"double_dunk", -18.6, -16.4},
    {"enduro", 0.0, 860.5},
    {"fishing_derby", -91.7, -38.7},
    {"freeway", 0.0, 29.6},
    {"frostbite", 65.2, 4334.7},
    {"gopher", 257.6, 2412.5},
    {"gravitar", 173.0, 3351.4},
    {"hero", 1027.0, 30826.4},
    {"ice_hockey", -11.2, 0.9},
    {"jamesbond", 29.0, 302.8},
    {"kangaroo", 52.0, 3035.0},
    {"krull", 1598.0, 2665.5},
    {"kung_fu_master", 258.5, 22736.3},
    {"montezuma_revenge", 0.0, 4753.3},
    {"ms_pacman", 307.3, 6951.6},
    {"name_this_game", 2292.3, 8049.0},
    {"phoenix", 761.4, 7242.6},
    {"pitfall", -229.4, 6463.7},
    {"pong", -20.7, 14.6},
    {"private_eye", 24.9, 69571.3},
    {"qbert", 163.9, 13455.0},
    {"riverraid", 1338.5, 17118.0},
    {"road_runner", 11.5, 7845.0},
    {"robotank", 2.2, 11.9},
    {"seaquest", 68.4, 42054.7},
    {"skiing", -17098.1, -4336.9},
    {"solaris", 1236.3, 12326.7},
    {"space_invaders", 148.0, 1668.7},
    {"star_gunner", 664.0, 10250.0},
    {"surround", -10.0, 6.5},
    {"tennis", -23.8, -8.3},
    {"time_pilot", 3568.0, 5229.2},
    {"tutankham", 11.4, 167.6},
    {"up_n_down", 533.4, 11693.2},
    {"venture", 0.0, 1187.5},
    {"video_pinball", 0.0, 17667.9},
    {"wizard_of_wor", 563.5, 4756.5},
    {"yars_revenge", 3092.9, 54576.9},
    {"zaxxon", 32.5, 9173.3},
};

// Only numbers that were compared with their source are here.
constexpr PublishedScore kPublished[] = {
    {"atlantis", "DQN, 200M frames", 279987, kPaper},
    {"atlantis", "ES, 1B frames", 1267410, kPaper},
    {"atlantis", "A3C, 1B frames", 911091, kPaper},
    {"atlantis", "random search, 1B frames", 26371, kPaper},
    {"atlantis", "Deep GA, 1B frames", 76273, kPaper},
    {"atlantis", "Deep GA, 6B frames", 129167, kPaper},
    {"frostbite", "DQN, 200M frames", 797, kPaper},
    {"frostbite", "ES, 1B frames", 370, kPaper},
    {"frostbite", "A3C, 1B frames", 191, kPaper},
    {"frostbite", "random search, 1B frames", 1164, kPaper},
    {"frostbite", "Deep GA, 1B frames", 4536, kPaper},
    {"frostbite", "Deep GA, 6B frames", 6220, kPaper},
    {"gravitar", "DQN, 200M frames", 473, kPaper},
    {"gravitar", "ES, 1B frames", 805, kPaper},
    {"gravitar", "A3C, 1B frames", 304, kPaper},
    {"gravitar", "random search, 1B frames", 431, kPaper},
    {"gravitar", "Deep GA, 1B frames", 476, kPaper},
    {"gravitar", "Deep GA, 6B frames", 764, kPaper},
    {"kangaroo", "DQN, 200M frames", 7259, kPaper},
    {"kangaroo", "ES, 1B frames", 11200, kPaper},
    {"kangaroo", "A3C, 1B frames", 94, kPaper},
    {"kangaroo", "random search, 1B frames", 1099, kPaper},
    {"kangaroo", "Deep GA, 1B frames", 3790, kPaper},
    {"kangaroo", "Deep GA, 6B frames", 11254, kPaper},
    {"skiing", "DQN, 200M frames", -13062, kPaper},
    {"skiing", "ES, 1B frames", -15443, kPaper},
    {"skiing", "A3C, 1B frames", -10911, kPaper},
    {"skiing", "random search, 1B frames", -7679, kPaper},
    {"skiing", "Deep GA, 1B frames", -6502, kPaper},
    {"skiing", "Deep GA, 6B frames", -5541, kPaper},
    {"frostbite", "ES, 1B frames", 304, kReproduction},
    {"frostbite", "Deep GA, 1B frames", 4220, kReproduction},
    {"frostbite", "Deep GA, 1B frames, second run", 5960, kReproduction},
    {"frostbite", "random search, 1B frames", 1450, kReproduction},
    {"frostbite", "Deep GA, 6B frames", 8670, kReproduction},
    {"atlantis", "ES, 1B frames", 171000, kReproduction},
    {"atlantis", "Deep GA, 1B frames", 58600, kReproduction},
    {"atlantis", "random search, 1B frames", 32200, kReproduction},
    {"gravitar", "ES, 1B frames", 622, kReproduction},
    {"gravitar", "Deep GA, 1B frames", 756, kReproduction},
    {"gravitar", "random search, 1B frames", 344, kReproduction},
    {"kangaroo", "ES, 1B frames", 7090, kReproduction},
    {"kangaroo", "Deep GA, 1B frames", 6800, kReproduction},
    {"kangaroo", "random search, 1B frames", 1210, kReproduction},
    {"skiing", "ES, 1B frames", -8990, kReproduction},
    {"skiing", "Deep GA, 1B frames", -6010, kReproduction},
    {"skiing", "random search, 1B frames", -7210, kReproduction},
};

}  // namespace

std::optional<AtariScale> ScaleOfGame(std::string_view game) {
  const auto* found = std::find_if(std::begin(kAtari57), std::end(kAtari57),
                                   [&](const AtariScale& row) { return row.game == game; });
  if (found == std::end(kAtari57)) return std::nullopt;
  return *found;
}

std::vector<PublishedScore> PublishedScores(std::string_view game) {
  std::vector<PublishedScore> rows;
  std::copy_if(std::begin(kPublished), std::end(kPublished), std::back_inserter(rows),
               [&](const PublishedScore& row) { return row.game == game; });
  return rows;
}

}  // namespace samara
