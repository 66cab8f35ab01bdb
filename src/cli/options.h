#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/open_runner.h"
#include "model/runner.h"

namespace redlite::cli {

/// Checks that a number lies in [low, high] (NaN does not), without cluttering the help.
template <typename Number>
CLI::Validator in_range(Number low, Number high) {
  return CLI::Validator(
      [low, high](const std::string& text) -> std::string {
        Number value{};
        if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
        return fmt::format("'{}' is not a number from {} to {}", text, low, high);
      },
      "");
}

/// Checks that a value is one of a few words, without cluttering the help.
CLI::Validator one_of(const std::vector<std::string>& words);

/// Checks that a value is a number of MiB, "full" or "auto".
CLI::Validator cache_size();

/// Declares --backend, --cache-mib, --residency, --host-cache-mib, --decode, --lookahead, --prefetch, --io,
/// --kv, --kernels, --context, --batch and
/// --threads.
void add_runner_options(CLI::App& command, engine::RunnerOptions& options);

/// Token ids from "1,2,3" or "@file" (the same, or ids separated by white space or brackets as JSON has
/// them). Throws Error on anything else, on an empty list, and on ids outside [0, n_vocab).
std::vector<model::Token> parse_tokens(const std::string& text, int n_vocab);

}  // namespace redlite::cli
