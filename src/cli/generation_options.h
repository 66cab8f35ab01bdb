#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace redlite::cli {

/// A prompt from the command line: exactly one of three.
struct PromptOptions {
  std::string text, file, tokens;
  bool chat = false;  ///< it is a user's message
};

/// Declares --prompt, --prompt-file, --tokens and --chat.
void add_prompt_options(CLI::App& command, PromptOptions& options);

/// Throws CLI::ValidationError (usage) unless exactly one prompt was given. For the command's callback.
void check_one_prompt(const CLI::App& command);

/// The prompt's tokens, at least one. Throws Error.
std::vector<model::Token> read_prompt(const PromptOptions& options, const model::Model& model,
                                      const tokenizer::Tokenizer& tokenizer);

/// Throws Error unless a prompt and `n` generated tokens fit into --context (0: not given) and the model's
/// context. Returns the context to open a runner with.
int context_for(const model::Model& model, size_t prompt_tokens, int n, int context_option);

/// Declares the sampler's options and --seed.
void add_sampler_options(CLI::App& command, engine::SamplerOptions& options);

/// From this call on the first Ctrl-C sets the flag returned, and a second one ends the program.
const std::atomic<bool>& interrupted_by_user();

}  // namespace redlite::cli
