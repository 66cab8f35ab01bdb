#pragma once

#include <cstddef>

#include "gpu/device.h"

namespace redlite::gpu {

/// Bytes a second that a copy of `bytes` bytes gets, the best of five.
double copy_speed(Device& device, Stream& stream, void* to, const void* from, size_t bytes);

/// Bytes a second of the device's memory, read and written, by a copy of more than its own caches hold, where
/// there is so much. Takes at most a quarter of what is free, and gives it back.
double memory_bandwidth(Device& device);

}  // namespace redlite::gpu
