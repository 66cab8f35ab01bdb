#pragma once

/// What kernels are written in; to be included by kernels only. Everything here exists twice, with the same
/// meaning: as CUDA (cuda/simt_cuda.h) and on the emulator (emulator/simt_emulator.h), whose declarations
/// carry the comments.
///
/// Rules that make one source right on both, checked by the emulator:
/// - Blocks are whole warps of 32 threads. Warp operations (shuffles, votes, sums, matrix products,
/// sync_warp)
///   are called by all 32 threads of a warp, sync_block() by all threads of a block, at the same place in the
///   source; threads that have nothing to contribute take part all the same.
/// - Nothing is unwound: no exceptions, no objects with destructors that matter.
/// - A block may not wait for another block of its launch; the last one to count itself in an atomic counter
///   may go on alone.
/// - Sums of floats have one written order: nothing is contracted (fma() where one is wanted), warp_sum()
/// adds
///   in the order of halves, atomics on floats do not exist.
#ifdef __CUDACC__
#include "gpu/cuda/simt_cuda.h"
#else
#include "gpu/emulator/simt_emulator.h"
#endif
