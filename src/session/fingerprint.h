#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "model/model.h"

namespace redlite::session {

/// What the bits of a state depend on: the model's files (metadata, tensor tables, sizes, times of change,
/// and samples of the weights), `more` (program, runner), and what this machine's mathematical library
/// computes.
std::array<uint64_t, 2> fingerprint(const model::Model& model, std::string_view more);

}  // namespace redlite::session
