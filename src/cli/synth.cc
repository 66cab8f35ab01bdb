#include "synth/synth.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/progress.h"
#include "base/quote.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "synth/shape.h"
#include "synth/types.h"

namespace redlite::cli {

namespace {

// A CLI11 check that a text can be parsed: what is wrong with it is a usage error.
template <typename Parse>
CLI::Validator parses(Parse parse) {
  return CLI::Validator(
      [parse](const std::string& text) -> std::string {
        try {
          parse(text);
          return "";
        } catch (const Error& e) {
          return e.what();
        }
      },
      "");
}

void run(const std::string& out, synth::Options options) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<Progress> bar;
  options.progress = [&](uint64_t written, uint64_t total) {
    if (!bar) bar = std::make_unique<Progress>("writing", total);
    bar->advance(written);
  };
  const uint64_t bytes = synth::write_model(out, options);
  bar.reset();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}: {:.2f} GiB in {:.1f} s ({:.0f} MB/s)\n", one_line(out),
             static_cast<double>(bytes) / (1 << 30), seconds, static_cast<double>(bytes) / 1e6 / seconds);
}

}  // namespace

void add_synth(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "synth",
      "Write a GGUF model of random but valid weights, for benchmarks and tests without a download.");
  auto out = std::make_shared<std::string>();
  auto options = std::make_shared<synth::Options>();
  command->add_option("out", *out, "File to write")->required();
  command
      ->add_option("--preset", options->preset,
                   fmt::format("Whose shape: {}", fmt::join(synth::preset_names(), ", ")))
      ->required()
      ->check(parses([](const std::string& s) { synth::preset_shape(s); }));
  command->add_option("--architecture", options->architecture,
                      "qwen3next, qwen35moe or qwen3moe, for the presets tiny and small");
  command
      ->add_option(
          "--mix", options->mix,
          fmt::format("Quant types of all roles: {} (default simple)", fmt::join(synth::mix_names(), ", ")))
      ->check(parses([](const std::string& s) { synth::TypePlan(s, ""); }));
  command
      ->add_option("--types", options->types,
                   fmt::format("Changes to the mix, such as experts=IQ2_XXS,q=Q4_K. Roles: {}",
                               fmt::join(synth::role_names(), ", ")))
      ->check(parses([](const std::string& s) { synth::TypePlan("", s); }));
  command
      ->add_option("--layout", options->layout,
                   fmt::format("What is unusual in the file, separated by commas: {}",
                               fmt::join(synth::layout_names(), ", ")))
      ->check(parses([](const std::string& s) { synth::parse_layout(s); }));
  command->add_option("--vocab-from", options->vocabulary_from, "Take the tokenizer of this GGUF file");
  command->add_option("--seed", options->seed, "Other seeds give other weights")->capture_default_str();
  command->add_option("--threads", options->threads, "0: one for each core")
      ->check(in_range(0, 1024))
      ->capture_default_str();
  command->callback([out, options] { run(*out, *options); });
}

}  // namespace redlite::cli
