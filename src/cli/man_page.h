#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace redlite::cli {

/// redlite(1) in troff, made from the declared commands and options.
std::string man_page(const CLI::App& app);

}  // namespace redlite::cli
