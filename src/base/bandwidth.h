#pragma once

namespace redlite {

/// Bytes per second at which `threads` threads together read memory: the best of a few passes over more
/// memory than the caches hold (1 GiB, or less where little is free). Takes about half a second.
double memory_read_bandwidth(int threads);

}  // namespace redlite
