// A map with the end points of populations, coloured by generation, as SVG.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "env/map.h"
#include "report/plot.h"

namespace samara {

struct EndPoints {
  uint64_t generation = 0;
  std::vector<float> positions;  // x, y, x, y, ...: where episodes of its population ended
};

// Early generations are drawn first, in violet, the last in orange. Points outside the map widen
// it, to at most three times its size; of many points every nth is drawn.
std::string MapSvg(const EnvironmentMap& map, std::span<const EndPoints> generations,
                   const std::string& title, SvgUse use = SvgUse::kInline);

// A path of the walls, with `at` the place of a point in the picture; empty without walls.
std::string WallsSvg(const EnvironmentMap& map,
                     const std::function<EnvironmentMap::Point(EnvironmentMap::Point)>& at);
// A colour between violet (0) and orange (1), and the bar of them with the words at its ends, below
// a chart's title.
std::string RampColour(double share);
std::string RampLegend(const std::string& from, const std::string& to);

}  // namespace samara
