#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/generate.h"
#include "engine/open_runner.h"

namespace redlite::cli {

/// What happened in a generation, for programs: rates, cache counters, bytes, times, memory.
nlohmann::ordered_json statistics_json(const engine::OpenRunner& open, const engine::GenerateResult& result);

/// The same as a table for people.
std::string statistics_table(const engine::OpenRunner& open, const engine::GenerateResult& result);

}  // namespace redlite::cli
