#include "cli/npy.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace redlite::cli {

static_assert(std::endian::native == std::endian::little, "the array is written as '<f4'");

NpyWriter::NpyWriter(std::string path, uint64_t rows, uint64_t cols)
    : path_(std::move(path)),
      temporary_(path_),
      file_(std::fopen(temporary_.c_str(), "wb"), std::fclose),
      missing_(rows * cols) {
  if (!file_) fail("{}: cannot be written: {}", temporary_.text(), std::strerror(errno));
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  constexpr size_t kPreamble = 10, kAlignment = 64;
  header.append(kAlignment - (kPreamble + header.size() + 1) % kAlignment, ' ');
  header += '\n';
  const std::string preamble = {'\x93',
                                'N',
                                'U',
                                'M',
                                'P',
                                'Y',
                                1,
                                0,
                                static_cast<char>(header.size() & 0xff),
                                static_cast<char>(header.size() >> 8)};
  write_bytes(std::as_bytes(std::span(preamble)));
  write_bytes(std::as_bytes(std::span(header)));
}

void NpyWriter::write_bytes(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size())
    fail("{}: cannot be written: {}", temporary_.text(), std::strerror(errno));
}

void NpyWriter::write(std::span<const float> values) {
  RL_CHECK(values.size() <= missing_, "{} values, {} missing", values.size(), missing_);
  missing_ -= values.size();
  write_bytes(std::as_bytes(values));
}

void NpyWriter::finish() {
  RL_CHECK(missing_ == 0, "{} values missing", missing_);
  const bool written = std::fflush(file_.get()) == 0 && ::fsync(::fileno(file_.get())) == 0;
  if (!written) fail("{}: cannot be written: {}", temporary_.text(), std::strerror(errno));
  file_.reset();
  temporary_.rename();
}

}  // namespace redlite::cli
