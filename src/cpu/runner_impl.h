#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cpu/cpu_runner.h"
#include "cpu/kernels.h"
#include "cpu/mixer_kernels.h"
#include "cpu/router_copies.h"
#include "cpu/scratch.h"
#include "cpu/sequence_state.h"
#include "cpu/thread_pool.h"

namespace redlite::cpu {

/// A product of a parallel region: y[(t - t_first) * y_stride + r] = w.row(r) . x[t] for all rows.
struct Product {
  model::Matrix w;
  const Activations* x;
  int t_first, t_last;
  float* y;
  size_t y_stride;
};

/// How a product is cut into pieces for the threads: rows by tokens, rows running fastest.
struct Cut {
  int rows;         ///< of a piece
  int row_pieces;   ///< pieces side by side
  int first_piece;  ///< number of its first piece in the region
};

/// Consecutive tokens of one sequence, rows [first, first + n) of a chunk. They follow the sequence's
/// position.
struct Run {
  CpuSequence* sequence;
  int first;
  int n;
};

/// The tokens of a pass, or as many of them as are computed at once; of one sequence or of several.
struct Chunk {
  std::vector<model::Token> tokens;  ///< [n]
  std::vector<int> logit_rows;       ///< those of which logits are wanted, rising
  std::vector<Run> runs;             ///< cover [0, n), each of another sequence

  int n() const { return static_cast<int>(tokens.size()); }
  /// Of the first token: what a tap is told, which sees one sequence only.
  int position() const { return runs[0].sequence->position(); }
  void clear() {
    tokens.clear();
    logit_rows.clear();
    runs.clear();
  }
};

/// Where the parts of a DeltaNet layer lie in what is projected from one token, for either layout of the
/// file: q | k | v | z | beta | alpha, or the older [q k v z] of each K head, then [beta alpha] of each.
struct DeltaOffsets {
  std::vector<int> q, k;                  ///< by K head
  std::vector<int> v, z, beta, alpha;     ///< by V head
  std::vector<std::vector<int>> v_heads;  ///< of each K head
};

/// Which experts the tokens of a chunk go to. A pair is a token with one of its experts; pairs are numbered
/// in the order of their experts.
struct Routing {
  std::vector<int32_t> ids;        ///< [n][n_experts_used], best first
  std::vector<float> weights;      ///< [n][n_experts_used]
  int n_predict = 0;               ///< tokens that the next layer's experts are predicted for
  std::vector<int32_t> predicted;  ///< experts of the next layer, likeliest first; empty without a prediction
  std::vector<int32_t> predicted_ids;  ///< [n][n_experts_used]
  std::vector<float> predicted_weights;

  std::vector<int32_t> experts;   ///< the distinct ones, in the order of their waves; a group of pairs each
  std::vector<char> retired;      ///< [experts.size()] not worth keeping for later tokens; or empty
  std::vector<int> first;         ///< [experts.size() + 1] a group's first pair
  std::vector<int32_t> token_of;  ///< [pairs]
  std::vector<int32_t> pair_of;   ///< [n][n_experts_used]
  std::vector<int> count;         ///< [n_experts], while grouping

  int n_pairs(int group) const { return first[group + 1] - first[group]; }
  std::span<const int32_t> tokens(int group) const {
    return {token_of.data() + first[group], static_cast<size_t>(n_pairs(group))};
  }
};

/// An expert whose weights are in memory and whose pairs wait to be computed.
struct ReadyExpert {
  const model::Model::Expert* expert;
  int group;    ///< in Routing
  int row = 0;  ///< of its first pair in the buffers of a region
};

/// Most taps of a convolution that we run.
inline constexpr int kMaxConvTaps = 16;

struct CpuRunner::Impl {
  Impl(const model::Model& model, const CpuOptions& options);

  /// Appends the 1 to `batch` tokens of `chunk`; writes logits[logit_rows.size()][n_vocab].
  void forward_chunk(float* logits);

  // Stages: h of n tokens (scratch.h and scratch.embd_rows) in, what they add to the residual (scratch.y)
  // out.
  void attention(int layer, int n);    // attention.cc
  void delta_net(int layer, int n);    // delta_net.cc
  void route(int layer, int n);        // experts.cc; into `routing`
  void experts_ffn(int layer, int n);  // experts.cc

  // Parts of the stages.
  void append_kv(const model::AttentionWeights& w, int index, const Run& run);
  void attend_token(int index, const Run& run);
  void attend_run(int index, const Run& run);
  void delta_heads(int layer, int k_head, std::span<const int> v_heads, int next_head, const Run& run,
                   float* thread_scratch);
  void remember_inputs(int layer, const Run& run);
  void predict_experts();
  void group_by_expert(int layer);
  void retire_experts(int layer, int n);
  experts::ExpertCache::Lease acquire_wave(int layer, int n, size_t first, size_t count);
  void compute_experts(int layer, int n, bool with_shared, const std::function<void()>& beside);

  /// All rows of all products, in one parallel region, and `beside` (ThreadPool::run).
  void multiply(std::span<const Product> products, const std::function<void()>& beside = {});
  /// body(token) for the tokens of a chunk, shared out between threads.
  template <typename Body>
  void for_tokens(int n, Body&& body) {
    pool.run(n, 1 + (n - 1) / (4 * pool.size()), [&](int first, int last, int) {
      for (int t = first; t < last; ++t) body(t);
    });
  }
  /// Row `to` of h = rms_norm(row `from` of x), with and without quantisation.
  void norm(int from, int to, const model::Vector& weight);

  /// Shows the tap n rows of the chunk, from row `first` on.
  void show(model::Stage stage, int layer, int first, int width, int n, const float* values) const {
    if (*tap) {
      (*tap)(stage, layer, chunk.position() + first, width,
             {values, static_cast<size_t>(n) * static_cast<size_t>(width)});
    }
  }
  /// Adds the time since the last call to a stage.
  void lap(double& stage) {
    const auto now = std::chrono::steady_clock::now();
    stage += std::chrono::duration<double>(now - lap_start).count();
    lap_start = now;
  }

  const model::Model& model;
  const model::Config& config;
  const model::Weights& weights;
  const Kernels& kernels;
  const MixerKernels& mixers;
  KvType kv_type;
  int capacity;
  ThreadPool pool;
  experts::ExpertCache cache;
  CpuSequence own;
  Scratch scratch;
  WeightPages weight_pages;
  RouterCopies routers;     ///< exact
  RouterCopies predictors;  ///< in 8 bits, what the next layer's router is guessed from
  Routing routing;

  // Prepared when the runner is made.
  std::vector<int> index_in_kind;           ///< by layer: how many layers of its kind come before
  std::vector<DeltaOffsets> delta_offsets;  ///< by layer
  std::vector<std::vector<float>> conv;     ///< by layer: [conv_kernel][conv_dim], for vectors of channels
  std::vector<double> rope_frequencies;     ///< [rope_dims / 2]

  Chunk chunk;
  const model::Tap* tap = nullptr;
  std::function<void(int layers_done)> after_layer;  ///< of the chunk; may be empty, may throw
  std::vector<float> logits;
  std::vector<Product> products;  ///< of the region being put together
  std::vector<Cut> cuts;          ///< of the region's products
  std::vector<ReadyExpert> ready;
  StageTimes times;
  std::chrono::steady_clock::time_point lap_start;
};

}  // namespace redlite::cpu
