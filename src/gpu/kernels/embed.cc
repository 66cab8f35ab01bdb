#include "gpu/kernels/embed.h"

#include "gpu/kernels/block.h"

namespace redlite::gpu {

struct Embed::Shared {};

RL_RUN void Embed::run(const Params& p, Shared&) {
  simt::let_next_start();
  simt::wait_for_previous();  // kernels of the step before still read what is written here
  const int token = static_cast<int>(simt::block_index().x), thread = simt::thread_index();
  const Step step = *p.host_step;
  if (token == 0 && thread == 0) {
    *p.step = step;
    if (p.stop != nullptr) *p.stop = 0;
  }
  const float* from = p.host_x + static_cast<size_t>(token) * p.n_embd;
  float* to = p.x + static_cast<size_t>(token) * p.n_embd;
  for (int i = thread; i < p.n_embd; i += kBlockThreads) to[i] = from[i];
  float* rope = p.rope + static_cast<size_t>(token) * p.rope_dims;
  for (int i = thread; i < p.rope_dims / 2; i += kBlockThreads) {
    // Whole turns are dropped in double precision: an angle of a far position keeps its digits.
    const double turns = (step.position + token) * p.rope_frequencies[i];
    const double part = turns - static_cast<double>(static_cast<int64_t>(turns));
    const float angle = static_cast<float>(part * 6.283185307179586);
    rope[i] = simt::cos(angle);
    rope[p.rope_dims / 2 + i] = simt::sin(angle);
  }
}

RL_KERNEL(Embed);

}  // namespace redlite::gpu
