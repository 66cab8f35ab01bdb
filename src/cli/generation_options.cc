#include "cli/generation_options.h"

#include <csignal>

#include "base/error.h"
#include "base/file.h"
#include "chat/chat.h"
#include "cli/options.h"

namespace redlite::cli {
namespace {

std::atomic<bool> interrupted = false;

}  // namespace

void add_prompt_options(CLI::App& command, PromptOptions& options) {
  const char* group = "Prompt (one of these)";
  command.add_option("-p,--prompt", options.text, "text to continue")->type_name("TEXT")->group(group);
  command.add_option("-f,--prompt-file", options.file, "the same, from a file")
      ->type_name("FILE")
      ->group(group);
  command.add_option("--tokens", options.tokens, "the same, as token ids: 1,2,3 or @file")
      ->type_name("IDS")
      ->group(group);
  command.add_flag("--chat", options.chat,
                   "the prompt is a user's message: render the model's chat template");
}

void check_one_prompt(const CLI::App& command) {
  if (command.count("--prompt") + command.count("--prompt-file") + command.count("--tokens") != 1)
    throw CLI::ValidationError("give exactly one of --prompt, --prompt-file and --tokens");
}

std::vector<model::Token> read_prompt(const PromptOptions& options, const model::Model& model,
                                      const tokenizer::Tokenizer& tokenizer) {
  if (!options.tokens.empty()) return parse_tokens(options.tokens, model.config().n_vocab);
  const std::string text = options.file.empty() ? options.text : read_text_file(options.file);
  if (options.chat) {
    std::vector<model::Token> tokens = chat::encode(tokenizer, chat::render_user_message(model.file(), text));
    if (tokens.empty())
      fail("{}: its chat template makes nothing of this message; leave out --chat", model.path());
    return tokens;
  }
  std::vector<model::Token> tokens = tokenizer.encode(text, /*parse_special=*/false);
  if (tokenizer.bos() >= 0) tokens.insert(tokens.begin(), tokenizer.bos());
  if (tokens.empty()) fail("the prompt is empty: give --prompt, --prompt-file or --tokens some text");
  return tokens;
}

int context_for(const model::Model& model, size_t prompt_tokens, int n, int context_option) {
  const int needed = static_cast<int>(prompt_tokens) + n;
  if (context_option != 0 && context_option < needed)
    fail("--context {} is too small for a prompt of {} tokens and -n {}", context_option, prompt_tokens, n);
  if (needed > model.config().context_length)
    fail("{} prompt tokens and -n {} exceed the model's context of {}", prompt_tokens, n,
         model.config().context_length);
  return context_option != 0 ? context_option : needed;
}

void add_sampler_options(CLI::App& command, engine::SamplerOptions& s) {
  const char* sampling = "Sampling";
  const auto add = [&](const char* name, auto& value, const char* what, auto low, auto high) {
    command.add_option(name, value, what)
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
  command.add_option("--seed", s.seed, "of the sampler")
      ->type_name("N")
      ->capture_default_str()
      ->group(sampling);
}

const std::atomic<bool>& interrupted_by_user() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = SA_RESETHAND;
  ::sigaction(SIGINT, &action, nullptr);
  return interrupted;
}

}  // namespace redlite::cli
