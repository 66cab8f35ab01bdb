#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace redlite::synth {

/// What to write. Empty strings choose the usual.
struct Options {
  std::string preset = {};           ///< see preset_names()
  std::string architecture = {};     ///< for the presets tiny and small
  std::string mix = {};              ///< see mix_names()
  std::string types = {};            ///< changes to the mix: "role=TYPE,..."; see role_names()
  std::string layout = {};           ///< "ssm-in,mtp,..."; see layout_names()
  std::string vocabulary_from = {};  ///< a GGUF whose tokenizer to take
  uint64_t seed = 0;
  int threads = 0;  ///< 0: one for each core
  /// Called with the bytes of weights just written and those of all weights.
  std::function<void(uint64_t written, uint64_t total)> progress = {};
};

/// Writes a GGUF file of random but valid weights: any engine can load it and computes finite, varied logits
/// with it. The same options give the same bytes. Throws Error on names that do not exist, a path that does,
/// and when writing fails; no file is left behind then. Returns the file's size.
uint64_t write_model(const std::string& path, const Options& options);

}  // namespace redlite::synth
