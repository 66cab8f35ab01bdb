#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/open_runner.h"
#include "engine/generate.h"

namespace redlite::cli {

/// What happened in a generation, for programs: rates, cache counters, bytes, times, memory.
nlohmann::ordered_json statistics_json(const OpenRunner& open, const engine::GenerateResult& result);

/// The same as a table for people.
std::string statistics_table(const OpenRunner& open, const engine::GenerateResult& result);

}  // namespace redlite::cli
