#include "gpu/kernels/prefill_inputs.h"

#include "gpu/kernels/block.h"
#include "gpu/kernels/delta_step.h"

namespace redlite::gpu {

struct PrefillInput::Shared {
  float sums[kBlockWarps];
  float factors[kMaxHeads];  // GatedNorm: of the heads
};
struct PrefillHidden::Shared {};
struct PrefillSum::Shared {};

namespace {

/// Four values of a strip, rounded; scale and sum (the scale times the sum of the integers) are the strip's.
struct QuantizedWord {
  uint32_t q;  // four signed bytes
  float scale;
  float sum;
};

/// As QuantizedActivations does it. Four neighbouring threads share a strip; called by whole warps.
RL_DEVICE inline QuantizedWord quantize_word(const simt::F32x4& x) {
  float largest = 0;
  for (int i = 0; i < 4; ++i) {
    const float magnitude = x.v[i] < 0 ? -x.v[i] : x.v[i];
    largest = largest < magnitude ? magnitude : largest;
  }
  largest = simt::warp_max<4>(largest);
  const bool zero = largest < 0x1p-100f;
  const float inverse = zero ? 0.0f : 127.0f / largest;
  uint32_t packed = 0;
  int sum = 0;
  for (int i = 0; i < 4; ++i) {
    const int q = simt::round_to_int(x.v[i] * inverse);
    packed |= (static_cast<uint32_t>(q) & 0xffu) << (8 * i);
    sum += q;
  }
  sum = simt::warp_sum<4>(sum);
  const float scale = zero ? 0.0f : largest / 127.0f;
  return {packed, scale, scale * static_cast<float>(sum)};
}

/// Called by whole warps; `there`: false where there is no such word.
RL_DEVICE inline void store_word(const QuantizedRows& to, size_t row, int word,
                                 const QuantizedWord& quantized, bool there, float factor = 1) {
  const float sum = quantized.sum * factor, pair_sum = sum + simt::shuffle_xor(sum, 4);
  if (!there) return;
  const size_t strip = row * static_cast<size_t>(to.strips) + static_cast<size_t>(word / 4);
  to.q[4 * strip + static_cast<size_t>(word % 4)] = quantized.q;
  if (word % 4 == 0) {
    to.scale[strip] = quantized.scale * factor;
    to.sum[strip] = sum;
  }
  if (word % 8 == 0) to.pair_sum[strip / 2] = pair_sum;
}

}  // namespace

RL_RUN void PrefillInput::run(const Params& p, Shared& shared) {
  const int token = static_cast<int>(simt::block_index().x);
  const int thread = simt::thread_index(), lane = simt::lane_index();
  const PrefillSource& in = p.input;
  simt::let_next_start();
  simt::wait_for_previous();
  float* x = simt::dynamic_shared<float>();  // [n]
  const float* from = in.x + static_cast<size_t>(token) * static_cast<size_t>(in.n);
  if (in.kind == PrefillSource::Kind::Plain) {
    for (int i = thread; i < in.n; i += kBlockThreads) x[i] = from[i];
  } else if (in.kind == PrefillSource::Kind::Norm) {
    const float scale = rms_scale(from, in.n, in.eps, shared.sums);
    for (int i = thread; i < in.n; i += kBlockThreads) x[i] = from[i] * scale * in.weight[i];
  } else {
    const float* proj = in.proj + static_cast<size_t>(token) * static_cast<size_t>(in.proj_stride);
    for (int head = simt::warp_index(); head < in.n / in.dim; head += kBlockWarps) {
      const float* o = from + head * in.dim;
      const float* z = proj + in.heads[head].z;
      // In parts, as the blocks of DeltaStep have them.
      float squares = 0;
      for (int first = 0; first < in.dim; first += DeltaStep::kColumns) {
        const int i = first + lane;
        const float value = i < in.dim ? o[i] : 0;
        squares += simt::warp_sum(value * value);
        if (i < in.dim) x[head * in.dim + i] = value * in.weight[i] * silu(z[i]);
      }
      if (lane == 0)
        shared.factors[head] = simt::reciprocal_sqrt(squares / static_cast<float>(in.dim) + in.eps);
    }
  }
  simt::sync_block();
  const bool gated = in.kind == PrefillSource::Kind::GatedNorm;
  const auto factor = [&](int i) { return gated && i < in.n ? shared.factors[i / in.dim] : 1.0f; };
  if (p.floats != nullptr) {
    for (int i = thread; i < in.n; i += kBlockThreads)
      p.floats[static_cast<size_t>(token) * static_cast<size_t>(in.n) + static_cast<size_t>(i)] =
          gated ? x[i] * factor(i) : x[i];
  }
  const int words = 4 * p.rounded.strips;
  for (int base = 0; base < words; base += kBlockThreads) {
    const int word = base + thread;
    simt::F32x4 v;
    for (int i = 0; i < 4; ++i) v.v[i] = 4 * word + i < in.n ? x[4 * word + i] : 0.0f;
    const QuantizedWord quantized = quantize_word(v);
    store_word(p.rounded, static_cast<size_t>(token), word, quantized, word < words, factor(4 * word));
  }
}

RL_RUN void PrefillHidden::run(const Params& p, Shared&) {
  simt::let_next_start();
  simt::wait_for_previous();
  int first_row = 0, end_row = p.tokens.n;
  if (p.tokens.tiles != nullptr) {
    const int first = p.tokens.first_tile[p.tokens.first_expert],
              end = p.tokens.first_tile[p.tokens.end_expert];
    if (first == end) return;
    first_row = p.tokens.tiles[first].first;
    end_row = p.tokens.tiles[end - 1].first + p.tokens.tiles[end - 1].count;
  }
  const int words = 4 * p.rounded.strips;
  const int64_t all = static_cast<int64_t>(end_row - first_row) * words;
  const int64_t step = static_cast<int64_t>(simt::grid_size().x) * kBlockThreads;
  for (int64_t base = static_cast<int64_t>(simt::block_index().x) * kBlockThreads; base < all; base += step) {
    const int64_t at = base + simt::thread_index();
    const size_t row = static_cast<size_t>(first_row + at / words);
    const int word = static_cast<int>(at % words);
    simt::F32x4 v{};
    if (at < all) {
      const float* from = p.gate_up + row * static_cast<size_t>(2 * p.ff) + 4 * word;
      float* to = p.floats + row * static_cast<size_t>(p.ff) + 4 * word;
      for (int i = 0; i < 4; ++i) {
        if (4 * word + i >= p.ff) continue;
        v.v[i] = silu(from[i]) * from[p.ff + i];
        to[i] = v.v[i];
      }
    }
    const QuantizedWord quantized = quantize_word(v);
    store_word(p.rounded, row, word, quantized, at < all);
  }
}

RL_RUN void PrefillSum::run(const Params& p, Shared&) {
  const size_t token = simt::block_index().x, n = static_cast<size_t>(p.n),
               n_used = static_cast<size_t>(p.n_used);
  simt::let_next_start();
  simt::wait_for_previous();
  const float* shares = p.shares + token * (n_used + (p.shared_parts == nullptr ? 0 : 1));
  for (size_t i = static_cast<size_t>(simt::thread_index()); i < n; i += kBlockThreads) {
    float sum = 0;
    for (size_t e = 0; e < n_used; ++e)
      sum = simt::fma(shares[e], p.parts[(token * n_used + e) * n + i], sum);
    if (p.shared_parts != nullptr) sum = simt::fma(shares[n_used], p.shared_parts[token * n + i], sum);
    p.residual[token * n + i] += sum;
    if (p.shown != nullptr) p.shown[token * n + i] = sum;
  }
}

RL_KERNEL(PrefillInput);
RL_KERNEL(PrefillHidden);
RL_KERNEL(PrefillSum);

}  // namespace redlite::gpu
