#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace redlite::synth {

/// Makes pieces in parallel and hands them over in order. `sizes[i]` is the bytes of piece i; `make(i, out)`
/// runs in any of `threads` threads, `take(bytes)` in the caller's. At most a few pieces per thread are held
/// at a time. What make() or take() throws ends the work and is thrown on.
void run_pipeline(const std::vector<size_t>& sizes, int threads,
                  const std::function<void(size_t, std::span<std::byte>)>& make,
                  const std::function<void(std::span<const std::byte>)>& take);

}  // namespace redlite::synth
