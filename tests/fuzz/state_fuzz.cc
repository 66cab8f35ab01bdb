// The reader of state files on any bytes: it gives a state whose every claim holds, or throws a one-line
// Error. The length and the checksum of the head, which no mutation keeps, are set right first.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "session/state_file.h"
#include "state_shape.h"

namespace redlite {
namespace {

constexpr size_t kFixed = 72, kTokens = 40, kMarks = 44, kContentBytes = 48, kHeadHash = 64;

void check_message(std::string_view message) {
  for (const char c : message) RL_CHECK(c >= 0x20 && c < 0x7f, "a character {} reached the message", int{c});
}

void set_right(std::vector<std::byte>& bytes) {
  if (bytes.size() < kFixed) return;
  uint32_t n_tokens = 0, n_marks = 0;
  std::memcpy(&n_tokens, &bytes[kTokens], sizeof(n_tokens));
  std::memcpy(&n_marks, &bytes[kMarks], sizeof(n_marks));
  const uint64_t lists = (uint64_t{n_tokens} + n_marks) * 4;
  if (lists > bytes.size() - kFixed) return;
  const uint64_t content = bytes.size() - kFixed - lists;
  std::memcpy(&bytes[kContentBytes], &content, sizeof(content));
  std::vector<std::byte> hashed(bytes.begin(), bytes.begin() + kHeadHash);
  hashed.insert(hashed.end(), bytes.begin() + kFixed,
                bytes.begin() + static_cast<std::ptrdiff_t>(kFixed + lists));
  const uint64_t hash = XXH3_64bits(hashed.data(), hashed.size());
  std::memcpy(&bytes[kHeadHash], &hash, sizeof(hash));
}

void run(std::span<const std::byte> input) {
  std::vector<std::byte> bytes(input.begin(), input.end());
  set_right(bytes);
  static const int file = ::memfd_create("state", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  RL_CHECK(file >= 0 && ::ftruncate(file, 0) == 0);
  RL_CHECK(::pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  const session::StateShape shape = testing::fuzzed_state_shape();
  try {
    session::StateHead head;
    const session::StateContent content = session::read_state_file(path, shape, head);
    RL_CHECK(!head.tokens.empty() && head.tokens.size() <= static_cast<size_t>(shape.capacity));
    for (const model::Token token : head.tokens) RL_CHECK(token >= 0 && token < shape.n_vocab);
    RL_CHECK(content.positions.size() == head.tokens.size() * shape.position_bytes);
    RL_CHECK(content.marks.size() == head.marks.size() && head.marks.size() <= session::kMostMarks);
    for (const auto& mark : content.marks) RL_CHECK(mark.size() == shape.mark_bytes);
  } catch (const Error& e) {
    check_message(e.what());
  }
}

}  // namespace
}  // namespace redlite

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  redlite::run(std::as_bytes(std::span(data, size)));
  return 0;
}
