#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace redlite::tokenizer {
namespace {

constexpr std::string_view kReplacementText = "\uFFFD";

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool special)
    : tokenizer_(tokenizer), special_(special) {}

std::string StreamDecoder::push(Token token) {
  return push_bytes(tokenizer_.piece(token, special_));
}

std::string StreamDecoder::push_bytes(std::string_view bytes) {
  held_ += bytes;
  const std::string_view all = held_;
  std::string out;
  size_t at = 0;
  while (at < all.size()) {
    bool complete = false;
    const size_t length = well_formed_prefix(all.substr(at), complete);
    if (complete) {
      out += all.substr(at, length);
      at += length;
    } else if (length > 0 && at + length == all.size()) {
      break;  // more bytes may complete it
    } else {
      out += kReplacementText;
      at += length > 0 ? length : 1;
    }
  }
  held_.erase(0, at);
  return out;
}

std::string StreamDecoder::finish() {
  if (held_.empty()) return "";
  held_.clear();
  return std::string(kReplacementText);  // what is held is one unfinished character
}

}  // namespace redlite::tokenizer
