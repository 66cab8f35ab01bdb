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

#ifdef REDLITE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef REDLITE_TSAN
#include <sanitizer/tsan_interface.h>
#endif
