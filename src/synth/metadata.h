#pragma once

#include "gguf/writer.h"
#include "synth/profile.h"
#include "synth/shape.h"
#include "synth/synth.h"
#include "synth/vocabulary.h"

namespace redlite::synth {

/// Adds every metadata key of a model: what its architecture needs, the tokenizer, and how it was made
/// (redlite.synth.*).
void add_metadata(gguf::Writer& writer, const Shape& shape, const Layout& layout,
                  const Vocabulary& vocabulary, const Options& options, const Knobs& knobs);

}  // namespace redlite::synth
