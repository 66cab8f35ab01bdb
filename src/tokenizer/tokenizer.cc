#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/special_matcher.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocabulary.h"

namespace redlite::tokenizer {

namespace {

/// The byte of a token <0xNN>; "" if its text is not of that form.
std::string byte_token_piece(std::string_view text) {
  uint8_t byte = 0;
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return "";
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  return error == std::errc() && end == text.data() + 5 ? std::string(1, static_cast<char>(byte)) : "";
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(const gguf::File& file)
      : vocabulary(read_vocabulary(file)), bpe(vocabulary, file.path()), specials(vocabulary) {}

  void encode_plain(std::string_view text, std::vector<Token>& out, Bpe::Scratch& scratch) const {
    std::string storage;
    text = repair_utf8(text, storage);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = word_end(vocabulary.pretokenizer, text, begin);
      bpe.encode(text.substr(begin, end - begin), out, scratch);
      begin = end;
    }
  }

  std::vector<Token> encode(std::string_view text, bool parse_special, std::span<const Range> plain) const {
    if (text.size() > size_t{std::numeric_limits<int32_t>::max()} / 3) {  // a repaired byte takes three
      fail("a text of {} bytes is too long for the tokenizer", text.size());
    }
    std::vector<Token> out;
    Bpe::Scratch scratch;
    size_t at = 0;
    for (const SpecialMatcher::Match& match : specials.find(text, parse_special, plain)) {
      encode_plain(text.substr(at, match.begin - at), out, scratch);
      out.push_back(match.token);
      at = match.begin + match.length;
    }
    encode_plain(text.substr(at), out, scratch);
    return out;
  }

  const Vocabulary vocabulary;
  const Bpe bpe;
  const SpecialMatcher specials;
};

Tokenizer::Tokenizer(const gguf::File& file) : impl_(std::make_unique<Impl>(file)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<Token> Tokenizer::encode(std::string_view text, bool parse_special) const {
  return impl_->encode(text, parse_special, {});
}

std::vector<Token> Tokenizer::encode(std::string_view text, std::span<const Range> plain) const {
  return impl_->encode(text, /*parse_special=*/true, plain);
}

std::vector<Token> Tokenizer::encode_prompt(std::string_view text, bool parse_special) const {
  std::vector<Token> tokens = encode(text, parse_special);
  if (impl_->vocabulary.add_bos) tokens.insert(tokens.begin(), impl_->vocabulary.bos);
  if (impl_->vocabulary.add_eos) tokens.push_back(impl_->vocabulary.eos);
  return tokens;
}

std::string Tokenizer::piece(Token token, bool special) const {
  const Vocabulary& v = impl_->vocabulary;
  if (token < 0 || token >= size()) fail("{} is no token: the vocabulary has {}", token, size());
  const std::string& text = v.texts[static_cast<size_t>(token)];
  if (v.is_kind(token, kControl | kUnknown)) return special ? text : "";
  if (v.is_kind(token, kUserDefined)) return text;
  if (v.is_kind(token, kNormal)) return decode_byte_characters(text);
  if (v.is_kind(token, kByte)) return byte_token_piece(text);
  return "";
}

int Tokenizer::size() const {
  return static_cast<int>(impl_->vocabulary.texts.size());
}

bool Tokenizer::is_end(Token token) const {
  const std::vector<Token>& ends = impl_->vocabulary.ends;
  return std::binary_search(ends.begin(), ends.end(), token);
}

Token Tokenizer::eos() const {
  return impl_->vocabulary.eos;
}

Token Tokenizer::bos() const {
  return impl_->vocabulary.add_bos ? impl_->vocabulary.bos : -1;
}

Token Tokenizer::find(std::string_view text) const {
  return impl_->bpe.find(text);
}

}  // namespace redlite::tokenizer
