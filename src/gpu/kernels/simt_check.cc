#include "gpu/kernels/simt_check.h"

#include "gpu/simt.h"

namespace redlite::gpu {

struct SimtCheck::Shared {
  alignas(16) uint32_t words[2][32][4];  ///< of each warp: 32 rows of 16 bytes
};

RL_RUN void SimtCheck::run(const Params& p, Shared& shared) {
  const int thread = simt::thread_index(), lane = simt::lane_index(), warp = simt::warp_index();
  const uint32_t* in = p.in + 12 * thread;
  int32_t* out = p.out + kResults * thread;
  float* out_f = p.out_f + 8 * thread;
  const auto x = static_cast<int>(in[6]);

  out[0] = simt::shuffle(x, 5);
  out[1] = simt::shuffle_xor(x, 9);
  out[2] = simt::shuffle_down(x, 3);
  out[3] = simt::shuffle_up(x, 3);
  out[4] = static_cast<int>(simt::ballot(x % 2 != 0));
  out[5] = simt::any(lane == 7) ? 1 : 0;
  out[6] = simt::all(lane != 7) ? 1 : 0;
  out[7] = simt::warp_sum(x);
  out[8] = simt::warp_sum<4>(x);
  out[9] = simt::warp_max(x);
  out[10] = simt::warp_min<8>(x);
  out[11] = simt::warp_sum(x, 16);
  out[12] = simt::dot4(in[6], in[7], x);
  out[13] = static_cast<int>(simt::permute_bytes(in[6], in[7], in[8] & 0x7777u));
  out[14] = static_cast<int>(simt::subtract_bytes(in[6], in[7]));
  out[15] = simt::count_bits(in[6]);
  out[16] = simt::lowest_bit(in[6] & in[7] & in[8]);
  const float f = static_cast<float>(x) * 0x1p-27f;
  out[17] = simt::round_to_int(static_cast<float>(x % 2001) * 0.5f);
  out[18] = simt::float_to_half(f);
  out[19] =
      static_cast<int>(simt::bits_of_float(simt::half_to_float(static_cast<uint16_t>(in[8] & 0x7bffu))));
  out[20] = simt::float_to_bfloat(f);
  out[21] = static_cast<int>(simt::bits_of_float(simt::fma(f, f, 1.0f)));
  out[22] = static_cast<int>(simt::bits_of_float(simt::reciprocal_sqrt(1.0f + f * f)));
  out[23] = thread;
  out[24] = simt::block_threads();
  out[25] = static_cast<int>(simt::grid_size().x + 10 * simt::block_index().x);
  // The float sum's order: halves.
  out[26] = static_cast<int>(simt::bits_of_float(simt::warp_sum(f)));

  simt::atomic_add(&p.counters[0], 1u);
  simt::atomic_or(&p.counters[1], 1u << lane);
  simt::atomic_max(&p.counters[2], in[6]);
  simt::atomic_min(&p.counters[3], in[6]);

  // Rows of 16 bytes through shared memory, in the background.
  simt::copy_async16(shared.words[warp][lane], in);
  simt::copy_commit();
  simt::copy_wait<0>();
  simt::sync_block();
  uint32_t matrices[4];
  simt::load_matrices(matrices, shared.words[warp][lane]);
  for (int i = 0; i < 4; ++i) out[27 + i] = static_cast<int>(matrices[i]);
  out[31] = static_cast<int>(shared.words[1 - warp][lane][0]);
  const auto wide = simt::load_once(reinterpret_cast<const simt::U32x4*>(in));
  for (int i = 0; i < 4; ++i) out[32 + i] = static_cast<int>(wide.v[i]);
  const auto pair = simt::load_cached(reinterpret_cast<const simt::U32x2*>(in + 4));
  for (int i = 0; i < 2; ++i) out[36 + i] = static_cast<int>(pair.v[i]);

  const uint32_t a[4] = {in[0], in[1], in[2], in[3]}, b[2] = {in[4], in[5]};
  int32_t d[4] = {1, 2, 3, 4};
  simt::multiply_s8(d, a, b);
  for (int i = 0; i < 4; ++i) out[38 + i] = d[i];
  // Small numbers in binary16 and bfloat16: the sign and low bits of an exponent near 1.
  uint32_t ah[4], bh[2];
  for (int i = 0; i < 4; ++i) ah[i] = (in[i] & 0x83ff83ffu) | 0x38003800u;
  for (int i = 0; i < 2; ++i) bh[i] = (in[4 + i] & 0x83ff83ffu) | 0x38003800u;
  float h[4] = {1, 2, 3, 4};
  simt::multiply_f16(h, ah, bh);
  for (int i = 0; i < 4; ++i) out_f[i] = h[i];
  for (int i = 0; i < 4; ++i) ah[i] = (in[i] & 0x807f807fu) | 0x3f003f00u;
  for (int i = 0; i < 2; ++i) bh[i] = (in[4 + i] & 0x807f807fu) | 0x3f003f00u;
  float g[4] = {1, 2, 3, 4};
  simt::multiply_bf16(g, ah, bh);
  for (int i = 0; i < 4; ++i) out_f[4 + i] = g[i];
  simt::multiply_s8(d, in[0], in[1], in[4], 5);
  for (int i = 0; i < 4; ++i) out[42 + i] = d[i];
  simt::copy_async4(&shared.words[warp][lane][1], in + 8);
  simt::copy_commit();
  simt::copy_wait<0>();
  simt::sync_block();
  out[46] = static_cast<int>(shared.words[1 - warp][lane][1]);
  simt::load_matrices_transposed(matrices, shared.words[warp][lane]);
  for (int i = 0; i < 4; ++i) out[47 + i] = static_cast<int>(matrices[i]);
  simt::sync_block();
  simt::copy_async8(&shared.words[warp][lane][2], in + 10);
  simt::copy_commit();
  simt::copy_wait<0>();
  simt::sync_block();
  for (int i = 0; i < 2; ++i) out[51 + i] = static_cast<int>(shared.words[1 - warp][lane][2 + i]);
}

RL_KERNEL(SimtCheck);

}  // namespace redlite::gpu
