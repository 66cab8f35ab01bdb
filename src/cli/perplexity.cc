#include "engine/perplexity.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "engine/open_runner.h"
#include "tokenizer/tokenizer.h"

namespace redlite::cli {
namespace {

struct PerplexityCommand {
  std::string model, file;
  int context = 512;
  int windows = 0;
  bool json = false;
  engine::RunnerOptions runner;
};

void run_perplexity(const PerplexityCommand& c) {
  const model::Model model(c.model);
  const tokenizer::Tokenizer tokenizer(model.file());
  std::string text = read_text_file(c.file);
  if (text.ends_with('\n')) text.pop_back();  // as llama-perplexity reads its -f
  const std::vector<model::Token> tokens = tokenizer.encode_prompt(text, /*parse_special=*/false);
  if (c.context > model.config().context_length)
    fail("--context {}: the model's is {}", c.context, model.config().context_length);
  // Both keep a second window for the estimate to be one.
  if (tokens.size() < 2 * static_cast<size_t>(c.context))
    fail(
        "{}: {} tokens, of which at least two windows of {} are wanted; give a longer text or a smaller "
        "--context",
        c.file, tokens.size(), c.context);
  const engine::OpenRunner open = engine::open_runner(model, c.runner, c.context);

  const size_t n_windows = tokens.size() / static_cast<size_t>(c.context);
  const size_t n_read = c.windows > 0 ? std::min(n_windows, static_cast<size_t>(c.windows)) : n_windows;
  engine::Perplexity result;
  {
    Progress bar("reading", n_read * static_cast<size_t>(c.context), ProgressUnit::Tokens);
    result = engine::perplexity(*open.runner, model.config().n_vocab, tokens, c.context, tokenizer.bos(),
                                c.windows, [&](const engine::Perplexity& so_far, double read) {
                                  if (so_far.windows > 0)
                                    bar.set_label(fmt::format("PPL {:.4f}", so_far.value));
                                  bar.reach(read);
                                });
  }
  if (c.json) {
    fmt::print("{}\n", nlohmann::ordered_json({{"perplexity", result.value},
                                               {"error", result.error},
                                               {"windows", result.windows},
                                               {"context", c.context},
                                               {"tokens_scored", result.scored}})
                           .dump(2));
    return;
  }
  fmt::print("PPL = {:.4f} +/- {:.5f} ({} tokens scored in {} windows of {})\n", result.value, result.error,
             result.scored, result.windows, c.context);
}

}  // namespace

void add_perplexity(CLI::App& app) {
  auto c = std::make_shared<PerplexityCommand>();
  CLI::App* command =
      app.add_subcommand("perplexity", "How well a model predicts a text, as llama-perplexity computes it");
  command->add_option("model", c->model, "GGUF file; any file of a split set")
      ->required()
      ->type_name("MODEL");
  command->add_option("file", c->file, "the text")->required()->type_name("FILE");
  command->add_option("--windows", c->windows, "read only so many windows; 0: all")
      ->type_name("N")
      ->check(in_range(0, 1 << 30))
      ->capture_default_str();
  command->add_flag("--json", c->json, "print the result as JSON");
  add_runner_options(*command, c->runner);
  command->remove_option(command->get_option("--context"));
  command->add_option("--context", c->context, "tokens of a window, of which the second half is scored")
      ->type_name("N")
      ->check(in_range(4, 1 << 24))
      ->capture_default_str()
      ->group("Engine");
  command->callback([c] { run_perplexity(*c); });
}

}  // namespace redlite::cli
