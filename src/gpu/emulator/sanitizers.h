#pragma once

// Which sanitizer this is compiled with, the same for both compilers.
#if defined(__SANITIZE_ADDRESS__)
#define REDLITE_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define REDLITE_TSAN 1
#endif
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define REDLITE_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define REDLITE_TSAN 1
#endif
#endif

// REDLITE_NO_ASAN: for functions that switch fibers. AddressSanitizer would guard the variables of their
// frames, which costs more than the switch, and a frame that is left for good would stay guarded.
#ifdef REDLITE_ASAN
#define REDLITE_NO_ASAN __attribute__((no_sanitize_address))
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define REDLITE_NO_ASAN
#endif
#ifdef REDLITE_TSAN
#include <sanitizer/tsan_interface.h>
#endif
