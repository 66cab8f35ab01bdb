// The GGUF reader on any bytes: it gives a File whose every claim holds, or throws a one-line Error.

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gguf/gguf.h"
#include "quant/decode.h"

namespace redlite {
namespace {

/// Every typed look-up of a key; each gives a value or throws Error.
void look_up(const gguf::File& file, const std::string& key) {
  const auto get = [](const auto& look) {
    try {
      look();
    } catch (const Error&) {
    }
  };
  get([&] { file.get_uint(key); });
  get([&] { file.get_float(key); });
  get([&] { file.get_bool(key); });
  get([&] { file.get_string(key); });
  get([&] { file.get_strings(key); });
  get([&] { file.get_uints(key); });
  get([&] { file.get_floats(key); });
  get([&] { file.get_bools(key); });
}

/// Decodes the first blocks: every byte pattern of every type means something.
void decode_start(const gguf::File& file, const gguf::TensorInfo& tensor) {
  constexpr size_t kMaxValues = 1024;
  const size_t values = std::min<size_t>(kMaxValues, tensor.shape[0]);
  std::vector<float> out(values);
  quant::decode(tensor.type, file.data(tensor).data(), out.data(), values);
}

void check_message(std::string_view message) {
  RL_CHECK(message.starts_with("m.gguf: "), "{}", message);
  for (const char c : message) RL_CHECK(c >= 0x20 && c < 0x7f, "a character {} reached the message", int{c});
}

void run(std::span<const std::byte> bytes) {
  try {
    const gguf::File file = gguf::File::from_bytes("m.gguf", bytes);
    for (const auto& [key, value] : file.metadata()) look_up(file, key);
    for (const gguf::TensorInfo& tensor : file.tensors()) {
      const auto data = file.data(tensor);
      RL_CHECK(data.data() >= bytes.data() && data.data() + data.size() <= bytes.data() + bytes.size(), "{}",
               tensor.name);
      RL_CHECK(file.find(tensor.name) == &tensor, "{}", tensor.name);
      decode_start(file, tensor);
    }
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
