# Every dependency is a Debian package (scripts/setup installs them); none is downloaded by the build.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
# Fibers, for the emulated GPU.
find_package(Boost REQUIRED COMPONENTS context)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
# Line editing, for the chat.
pkg_check_modules(libedit REQUIRED IMPORTED_TARGET libedit)
# States of conversations on disk.
pkg_check_modules(libzstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(libxxhash REQUIRED IMPORTED_TARGET libxxhash)
# io_uring is Linux only; without it the expert store reads with a pool of pread threads.
pkg_check_modules(liburing IMPORTED_TARGET liburing)
if(REDLITE_TESTS)
  find_package(GTest REQUIRED)
endif()
if(REDLITE_BENCH)
  find_package(benchmark REQUIRED)
endif()
