#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/commands.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

namespace redlite::cli {
namespace {

struct TokenizeOptions {
  std::string model;
  std::string text;
  std::optional<std::string> text_file;
  bool no_special = false;
  bool pieces = false;
  bool json = false;
};

std::string read_text(const TokenizeOptions& options) {
  if (!options.text_file) return options.text;
  if (*options.text_file != "-") return read_text_file(*options.text_file);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

/// The text that JSON can carry: bytes that are no UTF-8 by themselves (parts of characters) become U+FFFD.
std::string printable(const tokenizer::Tokenizer& tokenizer, tokenizer::Token token) {
  tokenizer::StreamDecoder decoder(tokenizer, true);
  const std::string text = decoder.push(token);
  return text + decoder.finish();
}

void print_json(const tokenizer::Tokenizer& tokenizer, const std::vector<tokenizer::Token>& tokens,
                bool pieces) {
  nlohmann::json out = {{"tokens", tokens}};
  if (pieces) {
    nlohmann::json& list = out["pieces"] = nlohmann::json::array();
    for (const tokenizer::Token token : tokens) list.push_back(printable(tokenizer, token));
  }
  fmt::print("{}\n", out.dump());
}

void print_pieces(const tokenizer::Tokenizer& tokenizer, const std::vector<tokenizer::Token>& tokens) {
  for (const tokenizer::Token token : tokens) {
    fmt::print("{:>7}  {}\n", token, nlohmann::json(printable(tokenizer, token)).dump());
  }
  fmt::print("{} tokens\n", tokens.size());
}

void tokenize(const TokenizeOptions& options) {
  const gguf::File file(options.model);
  const tokenizer::Tokenizer tokenizer(file);
  const std::vector<tokenizer::Token> tokens = tokenizer.encode(read_text(options), !options.no_special);
  if (options.json) {
    print_json(tokenizer, tokens, options.pieces);
  } else if (options.pieces) {
    print_pieces(tokenizer, tokens);
  } else {
    fmt::print("{}\n", fmt::join(tokens, ","));
  }
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Show the tokens of a text");
  command->add_option("model", options->model, "GGUF file")->required()->option_text("MODEL");
  CLI::Option* text = command->add_option("--text", options->text, "Text to tokenize")->option_text("T");
  CLI::Option* file =
      command->add_option("--text-file", options->text_file, "File to read it from; - is standard input")
          ->option_text("F")
          ->excludes(text);
  command->add_flag("--no-special", options->no_special, "Take <|im_start|> and its like for plain text");
  command->add_flag("--pieces", options->pieces, "Show the text of each token");
  command->add_flag("--json", options->json,
                    "Print JSON: {\"tokens\": [...]}, with --pieces also \"pieces\"");
  command->callback([=] {
    if (text->count() + file->count() == 0) throw CLI::RequiredError("--text or --text-file");
    tokenize(*options);
  });
}

}  // namespace redlite::cli
