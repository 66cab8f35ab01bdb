// Feeds every file of the folders named on the command line to a fuzz target: the corpus as a test.

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  int n_files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      const std::string bytes = redlite::read_text_file(entry.path().string());
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      ++n_files;
    }
  }
  fmt::print("{} files replayed\n", n_files);
  return n_files > 0 ? 0 : 1;
}
