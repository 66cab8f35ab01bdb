#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output.h"
#include "cli/commands.h"
#include "cli/npy.h"
#include "cli/options.h"
#include "engine/open_runner.h"
#include "model/model.h"

namespace redlite::cli {
namespace {

struct LogitsCommand {
  std::string model;
  std::string tokens;
  std::string out;
  bool json = false;
  engine::RunnerOptions runner;
};

void logits(const LogitsCommand& c) {
  check_output(c.out, {c.model});
  const model::Model model(c.model);
  const int n_vocab = model.config().n_vocab;
  const std::vector<model::Token> tokens = parse_tokens(c.tokens, n_vocab);
  const int needed = static_cast<int>(tokens.size());
  if (c.runner.context != 0 && c.runner.context < needed)
    fail("--context {} is too small for {} tokens", c.runner.context, needed);
  const engine::OpenRunner open = open_runner(model, c.runner, std::max(needed, c.runner.context));

  NpyWriter out(c.out, tokens.size(), static_cast<uint64_t>(n_vocab));
  const size_t batch = static_cast<size_t>(c.runner.batch);
  for (size_t first = 0; first < tokens.size(); first += batch) {
    const auto chunk = std::span(tokens).subspan(first, std::min(batch, tokens.size() - first));
    out.write(open.runner->forward(chunk, model::LogitsFor::All));
  }
  out.finish();
  if (c.json) {
    const nlohmann::json result = {{"file", c.out}, {"shape", {tokens.size(), n_vocab}}};
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print("{}: float32 [{}, {}]\n", c.out, tokens.size(), n_vocab);
  }
}

}  // namespace

void add_logits(CLI::App& app) {
  auto c = std::make_shared<LogitsCommand>();
  CLI::App* command = app.add_subcommand("logits", "Write the logits after each of the given tokens");
  command->add_option("model", c->model, "GGUF file; any file of a split set")
      ->required()
      ->option_text("MODEL");
  command->add_option("--tokens", c->tokens, "Token ids: 1,2,3 or @file")->required()->option_text("IDS");
  command->add_option("--out", c->out, "NumPy file to write: float32 [n_tokens, n_vocab]")
      ->required()
      ->option_text("F.npy");
  command->add_flag("--json", c->json, "Print JSON: {\"file\": ..., \"shape\": [n_tokens, n_vocab]}");
  c->runner.kv = "f32";  // what is compared should be exact first
  add_runner_options(*command, c->runner);
  command->callback([c] { logits(*c); });
}

}  // namespace redlite::cli
