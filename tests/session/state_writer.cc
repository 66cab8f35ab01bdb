// usage: state_writer FOLDER SEED    writes states there, some in place of others, until it is killed; says
// so with a dot for each that was taken up
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "session/state_folder.h"
#include "synthetic_state.h"

int main(int argc, char** argv) {
  using namespace redlite::session;
  if (argc != 3) return 2;
  std::mt19937 random(static_cast<uint32_t>(std::atoi(argv[2])));
  StateFolder folder(argv[1], synthetic_shape(), 8 << 20,
                     [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  for (;;) {
    folder.save(synthetic_state(static_cast<int>(100 + random() % 500), static_cast<int>(random() % 6)),
                true);
    if (::write(STDOUT_FILENO, ".", 1) != 1) return 1;
  }
}
