#pragma once

#include "gpu/kernels/prefill_product.h"
#include "gpu/launcher.h"

/// Launches of products with many tokens, with the kernel that a matrix's type asks for.
namespace redlite::gpu {

/// The same input twice: weights of floats multiply the one, quantised weights the other.
struct ProductInput {
  const float* floats = nullptr;  ///< [rows][stride], 16-byte aligned; may be nullptr for quantised weights
  int stride = 0;
  QuantizedRows rounded;
};

/// out = w times the input's rows, for at most n_tiles tiles of tokens.
void prefill_product(const Launcher& launcher, const DeviceMatrix& w, const ProductInput& x,
                     const TokenTiles& tokens, int n_tiles, const ProductOutput& out,
                     const Codebooks* codebooks, bool early_start = true);

/// The same in two steps, for quantised weights. Between them row_groups may be changed for the types for
/// which there is a kernel.
bool can_have_row_groups(quant::Type type);
PrefillProductParams product_params(const DeviceMatrix& w, const QuantizedRows& x, const TokenTiles& tokens,
                                    int n_tiles, const ProductOutput& out, const Codebooks* codebooks);
void launch_product(const Launcher& launcher, const PrefillProductParams& params, int n_tiles,
                    bool early_start = true);

/// logits[tokens.n][n_rows] = router[n_rows][n] times x[tokens.n][n], summed as model/router.h says.
void router_product(const Launcher& launcher, const float* router, int n_rows, const float* x, int n,
                    const TokenTiles& tokens, float* logits);

}  // namespace redlite::gpu
