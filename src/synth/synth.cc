#include "synth/synth.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "gguf/writer.h"
#include "synth/fill.h"
#include "synth/metadata.h"
#include "synth/pipeline.h"
#include "synth/profile.h"
#include "synth/shape.h"
#include "synth/tensors.h"
#include "synth/types.h"
#include "synth/vocabulary.h"

namespace redlite::synth {

uint64_t write_model(const std::string& path, const Options& options) {
  Shape shape = preset_shape(options.preset, options.architecture);
  const Layout layout = parse_layout(options.layout);
  const TypePlan types(options.mix, options.types);
  if (std::filesystem::exists(path)) fail("{}: already exists; remove it or choose another name", path);

  const Vocabulary vocabulary = options.vocabulary_from.empty()
                                    ? make_vocabulary(shape.n_vocab, shape.first_special,
                                                      shape.architecture == "qwen35moe" ? "qwen35" : "qwen2")
                                    : copy_vocabulary(options.vocabulary_from, shape.n_vocab);
  shape.n_vocab = static_cast<int>(vocabulary.text.size());

  Knobs knobs = choose_knobs(shape);
  if (layout.tied_output)  // the embedding has to give logits of the right size, too
    knobs.embedding_rms = logit_deviation(vocabulary.text) / std::sqrt(static_cast<float>(shape.n_embd));
  const Profile profile(shape, knobs);
  const Filler filler(options.seed, plan_tensors(shape, layout, types, profile, vocabulary.text));

  gguf::Writer writer(path);
  add_metadata(writer, shape, layout, vocabulary, options, knobs);
  for (const TensorPlan& t : filler.tensors()) writer.add_tensor(t.name, t.shape, t.type);
  writer.begin_data();

  std::vector<size_t> sizes;
  uint64_t data_bytes = 0;
  for (const Filler::Piece& p : filler.pieces()) {
    sizes.push_back(p.bytes);
    data_bytes += p.bytes;
  }
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  run_pipeline(
      sizes, threads, [&](size_t i, std::span<std::byte> out) { filler.fill(filler.pieces()[i], out); },
      [&](std::span<const std::byte> bytes) {
        writer.write(bytes);
        if (options.progress) options.progress(bytes.size(), data_bytes);
      });
  const uint64_t total = writer.total_bytes();
  writer.finish();
  return total;
}

}  // namespace redlite::synth
