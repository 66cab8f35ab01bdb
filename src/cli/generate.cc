#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/output.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/generation_options.h"
#include "cli/options.h"
#include "cli/statistics.h"
#include "engine/generate.h"
#include "engine/open_runner.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace redlite::cli {
namespace {

struct GenerateCommand {
  std::string model;
  PromptOptions prompt;
  bool print_ids = false, statistics = false, ignore_end = false;
  std::string statistics_file;
  int n = 256;
  engine::SamplerOptions sampler;
  engine::RunnerOptions runner;
};

void print_text(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail("standard output: {}", std::strerror(errno));
}

void generate(const GenerateCommand& c) {
  if (!c.statistics_file.empty()) check_output(c.statistics_file, {c.model, c.prompt.file});
  const model::Model model(c.model);
  const tokenizer::Tokenizer tokenizer(model.file());
  const std::vector<model::Token> prompt = read_prompt(c.prompt, model, tokenizer);
  const int context = context_for(model, prompt.size(), c.n, c.runner.context);
  const engine::OpenRunner open = open_runner(model, c.runner, context);
  if (c.runner.cache_mib == "auto" && (open.cpu || open.gpu) && ::isatty(STDERR_FILENO))
    fmt::print(stderr, "expert cache: {}\n", open.cache_description);
  engine::GenerateOptions options;
  options.max_tokens = c.n;
  options.sampler = c.sampler;
  options.ignore_end = c.ignore_end;
  options.cancel = &interrupted_by_user();

  if (!c.prompt.chat && c.prompt.tokens.empty() && ::isatty(STDOUT_FILENO)) print_text(c.prompt.text);
  // The bar shows while a long prompt is read and is gone when the first word comes.
  auto bar = std::make_unique<Progress>("reading", prompt.size(), ProgressUnit::Tokens);
  open.runner->set_progress([&](double done) {
    if (bar) bar->reach(done);
  });
  const auto sink = [&](std::string_view text) {
    bar.reset();
    print_text(text);
  };
  const engine::GenerateResult result = engine::generate(*open.runner, tokenizer, prompt, options, sink);
  print_text("\n");
  if (c.print_ids) print_text(nlohmann::json(result.tokens).dump() + "\n");
  if (c.statistics) fmt::print(stderr, "\n{}", statistics_table(open, result));
  if (!c.statistics_file.empty()) {
    const std::string json = statistics_json(open, result).dump(2) + "\n";
    write_file_atomically(c.statistics_file, std::as_bytes(std::span(json)));
  }
}

}  // namespace

void add_generate(CLI::App& app) {
  auto c = std::make_shared<GenerateCommand>();
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt, or answer it (--chat)");
  command->add_option("model", c->model, "GGUF file; any file of a split set")
      ->required()
      ->type_name("MODEL");

  add_prompt_options(*command, c->prompt);
  command->add_option("-n,--n-predict", c->n, "most tokens to generate")
      ->type_name("N")
      ->check(in_range(0, 1 << 24))
      ->capture_default_str();
  command->add_flag("--ignore-eos", c->ignore_end, "go on past the end-of-text token");
  command->add_flag("--print-ids", c->print_ids, "print the generated ids as a JSON array on the last line");
  command->add_flag("--stats", c->statistics, "print a table of what happened to stderr");
  command->add_option("--stats-json", c->statistics_file, "write the same as JSON")->type_name("FILE");

  add_sampler_options(*command, c->sampler);
  add_runner_options(*command, c->runner);
  command->callback([=] {
    check_one_prompt(*command);
    generate(*c);
  });
}

}  // namespace redlite::cli
