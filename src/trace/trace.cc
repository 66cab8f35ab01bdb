#include "trace/trace.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "experts/layout.h"
#include "trace/bits.h"

namespace redlite::trace {
namespace {

constexpr std::string_view kMagic("RLTRACE\n", 8);
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMaxLayers = 4096, kMaxExperts = 16384, kMaxName = 4096;
/// Of all slots together: far from what sums of sizes could overflow.
constexpr uint64_t kMaxBytes = uint64_t{1} << 44;

/// CRC-32 (IEEE 802.3, as zlib computes it).
uint32_t crc32(std::span<const std::byte> bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = (t[i] >> 1) ^ ((t[i] & 1) != 0 ? 0xedb88320u : 0);
    }
    return t;
  }();
  uint32_t crc = ~uint32_t{0};
  for (const std::byte b : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint32_t>(b)) & 0xff];
  return ~crc;
}

template <typename T>
void put(std::vector<std::byte>& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
}

size_t packed_bytes(uint64_t numbers, int bits) {
  return static_cast<size_t>((numbers * static_cast<uint64_t>(bits) + 7) / 8);
}

void put_packed(std::vector<std::byte>& out, std::span<const uint16_t> numbers, int bits) {
  BitWriter writer(out);
  for (const uint16_t number : numbers) writer.put(number, bits);
  writer.finish();
}

class Decoder {
 public:
  Decoder(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  template <typename T>
  T get(const char* what) {
    uint64_t value = 0;
    const std::span<const std::byte> raw = take(sizeof(T), what);
    for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(raw[i]) << (8 * i);
    return static_cast<T>(value);
  }

  uint32_t get_between(uint32_t low, uint32_t high, const char* what) {
    const auto value = get<uint32_t>(what);
    if (value < low || value > high) bad("{} is {}; {} to {} are possible", what, value, low, high);
    return value;
  }

  std::span<const std::byte> take(uint64_t n, const char* what) {
    if (n > bytes_.size() - at_)
      bad("{} need {} bytes at offset {}, but the file has {} left; it was cut short", what, n, at_,
          bytes_.size() - at_);
    at_ += static_cast<size_t>(n);
    return bytes_.subspan(at_ - static_cast<size_t>(n), static_cast<size_t>(n));
  }

  /// Groups of `width` distinct numbers below `limit`.
  std::vector<uint16_t> get_packed(uint64_t groups, int width, int limit, const char* what) {
    const int bits = bits_below(limit);
    const uint64_t numbers = groups * static_cast<uint64_t>(width);
    BitReader reader(take(packed_bytes(numbers, bits), what));
    std::vector<uint16_t> out;
    out.reserve(static_cast<size_t>(numbers));
    std::vector<uint64_t> seen(static_cast<size_t>(limit), 0);
    for (uint64_t group = 1; group <= groups; ++group) {
      for (int i = 0; i < width; ++i) {
        const uint32_t number = reader.get(bits);
        if (number >= static_cast<uint32_t>(limit)) bad("{} name expert {} of {}", what, number, limit);
        if (std::exchange(seen[number], group) == group) bad("{} name expert {} twice", what, number);
        out.push_back(static_cast<uint16_t>(number));
      }
    }
    return out;
  }

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail("{}: not a valid trace: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const std::string& path_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

}  // namespace

std::vector<std::byte> encode(const Trace& t) {
  const size_t groups = t.n_tokens() * static_cast<size_t>(t.n_layers);
  RL_CHECK(t.layers.size() == static_cast<size_t>(t.n_layers) && t.selected.size() == groups * t.n_used &&
               t.predicted.size() == (groups - t.n_tokens()) * t.n_predicted,
           "the parts of a trace do not fit together");
  std::vector<std::byte> out;
  const auto put_text = [&](std::string_view text) {
    for (const char c : text) out.push_back(static_cast<std::byte>(c));
  };
  put_text(kMagic);
  put(out, kVersion);
  for (const int n : {t.n_layers, t.n_experts, t.n_used, t.n_predicted}) put(out, static_cast<uint32_t>(n));
  put(out, static_cast<uint32_t>(t.n_tokens()));
  put(out, static_cast<uint32_t>(t.chunks.size()));
  const std::string_view name = std::string_view(t.model).substr(0, kMaxName);
  put(out, static_cast<uint32_t>(name.size()));
  put_text(name);
  put(out, t.dense_bytes);
  for (const LayerSizes& layer : t.layers) {
    put(out, layer.triplet_bytes);
    put(out, layer.slot_bytes);
  }
  for (const uint32_t n : t.chunks) put(out, n);
  for (const int32_t token : t.tokens) put(out, token);
  put_packed(out, t.selected, bits_below(t.n_experts));
  put_packed(out, t.predicted, bits_below(t.n_experts));
  put(out, crc32(out));
  return out;
}

Trace decode(const std::string& path, std::span<const std::byte> bytes) {
  Decoder in(path, bytes);
  const auto magic = in.take(std::min(bytes.size(), kMagic.size()), "");
  if (magic.size() < kMagic.size() || std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0)
    fail("{}: not a trace; `redlite trace MODEL --prompt-file F --out T` writes one", path);
  const auto version = in.get<uint32_t>("the version");
  if (version != kVersion)
    fail("{}: a trace of version {}; this program reads version {}: make the trace anew", path, version,
         kVersion);
  if (in.left() < 4) in.bad("it ends after {} bytes", bytes.size());
  const uint32_t stored = [&] {
    Decoder last(path, bytes.last(4));
    return last.get<uint32_t>("");
  }();
  if (crc32(bytes.first(bytes.size() - 4)) != stored)
    in.bad("its checksum is wrong; it was cut short or changed");

  Trace t;
  t.n_layers = static_cast<int>(in.get_between(1, kMaxLayers, "the number of layers"));
  t.n_experts = static_cast<int>(in.get_between(1, kMaxExperts, "the number of experts"));
  const auto most = static_cast<uint32_t>(t.n_experts);
  t.n_used = static_cast<int>(in.get_between(1, most, "the number of experts used"));
  t.n_predicted = static_cast<int>(in.get_between(0, most, "the number of predictions"));
  const auto n_tokens = in.get<uint32_t>("the number of tokens");
  const auto n_chunks = in.get<uint32_t>("the number of chunks");
  const auto name = in.take(in.get_between(0, kMaxName, "the length of the name"), "the name");
  t.model.assign(reinterpret_cast<const char*>(name.data()), name.size());
  t.dense_bytes = in.get<uint64_t>("the dense bytes");
  uint64_t all_bytes = 0;
  for (int l = 0; l < t.n_layers; ++l) {
    const auto triplet = in.get<uint64_t>("the sizes of experts");
    const auto slot = in.get<uint64_t>("the sizes of experts");
    all_bytes += slot < kMaxBytes / kMaxExperts ? slot * most : kMaxBytes;
    if (triplet == 0 || triplet > slot || slot % experts::kIoAlignment != 0 || all_bytes >= kMaxBytes)
      in.bad("an expert of layer {} takes {} bytes in a slot of {}", l, triplet, slot);
    t.layers.push_back({triplet, slot});
  }
  Decoder chunks(path, in.take(uint64_t{n_chunks} * 4, "the chunks"));
  uint64_t total = 0;
  for (uint32_t i = 0; i < n_chunks; ++i) {
    t.chunks.push_back(chunks.get<uint32_t>("the chunks"));
    if (t.chunks.back() == 0) in.bad("chunk {} has no tokens", i);
    total += t.chunks.back();
  }
  if (total != n_tokens) in.bad("chunks of {} tokens together, but {} tokens", total, n_tokens);
  Decoder tokens(path, in.take(uint64_t{n_tokens} * 4, "the tokens"));
  for (uint32_t i = 0; i < n_tokens; ++i) t.tokens.push_back(tokens.get<int32_t>("the tokens"));
  const uint64_t groups = uint64_t{n_tokens} * static_cast<uint64_t>(t.n_layers);
  t.selected = in.get_packed(groups, t.n_used, t.n_experts, "the selections");
  t.predicted = in.get_packed(groups - n_tokens, t.n_predicted, t.n_experts, "the predictions");
  if (in.left() != 4) in.bad("{} bytes follow its end", in.left() - 4);
  return t;
}

void write_trace(const std::string& path, const Trace& trace) {
  write_file_atomically(path, encode(trace));
}

Trace read_trace(const std::string& path) {
  const MappedFile file(path);
  return decode(path, file.bytes());
}

}  // namespace redlite::trace
