#pragma once

#include <cstddef>
#include <string_view>

namespace redlite::tokenizer {

/// How text is cut into words before byte pairs are merged inside each of them (tokenizer.ggml.pre).
enum class Pretokenizer { Qwen2, Qwen35 };

/// The end of the word that begins at `begin` (< text.size()); text must be repaired UTF-8. This is the first
/// match of the models' expression, written as code:
///
///   (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N} | ?[^\s\p{L}\p{N}]+[\r\n]*
///   | \s*[\r\n]+ | \s+(?!\S) | \s+
///
/// where Qwen35 reads [\p{L}\p{M}] for \p{L}, except in the optional first character of a word.
size_t word_end(Pretokenizer kind, std::string_view text, size_t begin);

}  // namespace redlite::tokenizer
