#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "chat/chat.h"
#include "cli/commands.h"
#include "cli/open_runner.h"
#include "cli/options.h"
#include "cli/statistics.h"
#include "engine/generate.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace redlite::cli {
namespace {

struct GenerateCommand {
  std::string model;
  std::string prompt, prompt_file, tokens;
  bool chat = false, print_ids = false, statistics = false, ignore_end = false;
  std::string statistics_file;
  int n = 256;
  engine::SamplerOptions sampler;
  RunnerOptions runner;
};

std::atomic<bool> interrupted = false;

/// The first Ctrl-C ends the generation after the token in hand; a second one ends the program.
void end_on_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = SA_RESETHAND;
  ::sigaction(SIGINT, &action, nullptr);
}

std::vector<model::Token> read_prompt(const GenerateCommand& c, const model::Model& model,
                                      const tokenizer::Tokenizer& tokenizer) {
  if (!c.tokens.empty()) return parse_tokens(c.tokens, model.config().n_vocab);
  std::string text = c.prompt_file.empty() ? c.prompt : read_text_file(c.prompt_file);
  if (c.chat) text = chat::render(model.file(), {{"user", text}});
  std::vector<model::Token> tokens = tokenizer.encode(text, /*parse_special=*/c.chat);
  if (tokenizer.bos() >= 0) tokens.insert(tokens.begin(), tokenizer.bos());
  if (tokens.empty()) fail("the prompt is empty: give --prompt, --prompt-file or --tokens some text");
  return tokens;
}

void print_text(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void generate(const GenerateCommand& c) {
  const model::Model model(c.model);
  const tokenizer::Tokenizer tokenizer(model.file());
  const std::vector<model::Token> prompt = read_prompt(c, model, tokenizer);
  const int needed = static_cast<int>(prompt.size()) + c.n;
  if (c.runner.context != 0 && c.runner.context < needed)
    fail("--context {} is too small for a prompt of {} tokens and -n {}", c.runner.context, prompt.size(),
         c.n);
  if (needed > model.config().context_length)
    fail("{} prompt tokens and -n {} exceed the model's context of {}", prompt.size(), c.n,
         model.config().context_length);

  const OpenRunner open = open_runner(model, c.runner, c.runner.context != 0 ? c.runner.context : needed);
  if (c.runner.cache_mib == "auto" && open.cpu && ::isatty(STDERR_FILENO))
    fmt::print(stderr, "expert cache: {}\n", open.cache_description);
  engine::GenerateOptions options;
  options.max_tokens = c.n;
  options.sampler = c.sampler;
  options.ignore_end = c.ignore_end;
  options.cancel = &interrupted;
  end_on_interrupt();

  if (!c.chat && c.tokens.empty() && ::isatty(STDOUT_FILENO)) print_text(c.prompt);
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

  const char* prompt = "Prompt (one of these)";
  auto* text = command->add_option("-p,--prompt", c->prompt, "text to continue")->type_name("TEXT");
  auto* file =
      command->add_option("-f,--prompt-file", c->prompt_file, "the same, from a file")->type_name("FILE");
  auto* ids =
      command->add_option("--tokens", c->tokens, "the same, as token ids: 1,2,3 or @file")->type_name("IDS");
  for (CLI::Option* option : {text, file, ids}) option->group(prompt);
  command->add_flag("--chat", c->chat, "the prompt is a user's message: render the model's chat template");

  command->add_option("-n,--n-predict", c->n, "most tokens to generate")
      ->type_name("N")
      ->check(in_range(0, 1 << 24))
      ->capture_default_str();
  command->add_flag("--ignore-eos", c->ignore_end, "go on past the end-of-text token");
  command->add_flag("--print-ids", c->print_ids, "print the generated ids as a JSON array on the last line");
  command->add_flag("--stats", c->statistics, "print a table of what happened to stderr");
  command->add_option("--stats-json", c->statistics_file, "write the same as JSON")->type_name("FILE");

  engine::SamplerOptions& s = c->sampler;
  const char* sampling = "Sampling";
  const auto add = [&](const char* name, auto& value, const char* what, auto low, auto high) {
    command->add_option(name, value, what)
        ->type_name("X")
        ->check(in_range(low, high))
        ->capture_default_str()
        ->group(sampling);
  };
  add("--temp", s.temperature, "temperature; 0: always the likeliest token", 0.0f, 100.0f);
  add("--top-k", s.top_k, "keep the K likeliest tokens; 0: off", 0, 1 << 30);
  add("--top-p", s.top_p, "keep the likeliest tokens that sum to P; 1: off", 0.0f, 1.0f);
  add("--min-p", s.min_p, "keep tokens at least P times as likely as the likeliest; 0: off", 0.0f, 1.0f);
  add("--repeat-penalty", s.repeat_penalty, "divide the logits of recent tokens; 1: off", 0.01f, 100.0f);
  add("--presence-penalty", s.presence_penalty, "subtract from the logits of recent tokens; 0: off", -100.0f,
      100.0f);
  add("--frequency-penalty", s.frequency_penalty, "the same times their count; 0: off", -100.0f, 100.0f);
  add("--repeat-last-n", s.penalty_last_n, "how many tokens are recent; 0: none, -1: all", -1, 1 << 30);
  command->add_option("--seed", s.seed, "of the sampler")
      ->type_name("N")
      ->capture_default_str()
      ->group(sampling);
  add_runner_options(*command, c->runner);
  command->callback([=] {
    if (text->count() + file->count() + ids->count() != 1)
      throw CLI::ValidationError("give exactly one of --prompt, --prompt-file and --tokens");
    generate(*c);
  });
}

}  // namespace redlite::cli
