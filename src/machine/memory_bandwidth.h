#pragma once

#include <cstddef>
#include <span>

namespace redlite::machine {

/// Bytes a second at which `threads` (1 or more) threads together read memory: the best of `passes` passes
/// over more of it than the caches hold, in huge pages where the system gives them: `most_bytes`, or an
/// eighth of what is free where that is less. A pass over 1 GiB takes 25 to 100 ms. Throws Error when there
/// is too little memory.
double memory_bandwidth(int threads, int passes = 10, size_t most_bytes = size_t{1} << 30);

/// Reads memory as fast as one thread can, for its time alone.
void read_memory(std::span<const std::byte> bytes);

}  // namespace redlite::machine
