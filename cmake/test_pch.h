// Headers that nearly every test includes; precompiled once for all test programs.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pch.h"
