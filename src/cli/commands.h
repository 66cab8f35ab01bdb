#pragma once

#include <CLI/CLI.hpp>

namespace redlite::cli {

// One function for each subcommand, in the file of its name. It declares the options and sets a callback that
// does the work; the callback throws Error (exit 1) or CLI::ParseError (exit 2, usage).

void add_bench(CLI::App& app);
void add_chat(CLI::App& app);
void add_completions(CLI::App& app);
void add_convert(CLI::App& app);
void add_doctor(CLI::App& app);
void add_info(CLI::App& app);
void add_logits(CLI::App& app);
void add_models(CLI::App& app);
void add_parity(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_plan(CLI::App& app);
void add_generate(CLI::App& app);
void add_help(CLI::App& app);
void add_serve(CLI::App& app);
void add_kernel_selftest(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_synth(CLI::App& app);
void add_trace(CLI::App& app);
void add_simulate(CLI::App& app);

}  // namespace redlite::cli
