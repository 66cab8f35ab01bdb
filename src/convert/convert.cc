#include "convert/convert.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "base/quote.h"
#include "gguf/writer.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace redlite::convert {
namespace {

// Values decoded at a time by one thread: 1 MiB of F32, large enough to hide the start of a thread.
constexpr uint64_t kPieceValues = uint64_t{1} << 18;

/// llama.cpp's number for "mostly this type" (llama_ftype).
uint32_t file_type(quant::Type target) {
  switch (target) {
    case quant::Type::F32:
      return 0;
    case quant::Type::F16:
      return 1;
    case quant::Type::Q8_0:
      return 7;
    default:
      RL_CHECK(false, "no conversion to {}", quant::name(target));
  }
}

/// What llama.cpp never quantises, because it computes with it in F32 and little would be saved.
bool stays_f32(const gguf::TensorInfo& tensor) {
  const auto dims = std::ranges::count_if(tensor.shape, [](uint64_t n) { return n > 1; });
  const std::string_view name = tensor.name;
  return dims < 2 || !name.ends_with("weight") || name.ends_with("_norm.weight") ||
         name.ends_with("ffn_gate_inp.weight") || name.find("ssm_conv1d") != std::string_view::npos;
}

void refuse_to_overwrite_input(const gguf::File& file, const std::string& path) {
  for (const MappedFile& shard : file.shards()) {
    std::error_code ignored;
    if (std::filesystem::equivalent(shard.file().path(), path, ignored)) {
      fail("{}: this is the model being read; name another file to write", path);
    }
  }
}

void write_metadata(const gguf::File& file, quant::Type target, gguf::Writer& writer) {
  for (const auto& [key, value] : file.metadata()) {
    if (key == "general.alignment" || key == "general.file_type" || key.starts_with("split.")) continue;
    writer.add(key, value);
  }
  writer.add("general.file_type", file_type(target));
  if (target == quant::Type::Q8_0 && file.find_value("general.quantization_version") == nullptr) {
    writer.add("general.quantization_version", uint32_t{2});
  }
}

/// One piece of a tensor on its way from one type to another.
struct Piece {
  std::vector<float> values;
  std::vector<std::byte> encoded;
  bool fits = true;

  void convert(quant::Type from, std::span<const std::byte> source, quant::Type to, uint64_t n_values) {
    values.resize(n_values);
    quant::decode(from, source.data(), values.data(), n_values);
    encoded.resize(quant::row_bytes(to, n_values));
    fits = quant::encode(to, values.data(), encoded.data(), n_values);
  }
};

class Converter {
 public:
  Converter(const gguf::File& file, gguf::Writer& writer, Progress& progress)
      : file_(file),
        writer_(writer),
        progress_(progress),
        pieces_(std::max(1u, std::thread::hardware_concurrency())) {}

  void copy(const gguf::TensorInfo& tensor) {
    constexpr size_t kStep = size_t{8} << 20;
    auto rest = file_.data(tensor);
    while (!rest.empty()) {
      const auto part = rest.first(std::min(kStep, rest.size()));
      writer_.write(part);
      progress_.advance(part.size());
      rest = rest.subspan(part.size());
    }
  }

  /// Decodes and encodes as many pieces at a time as there are cores, and writes them in order.
  void convert(const gguf::TensorInfo& tensor, quant::Type to) {
    const auto source = file_.data(tensor);
    const quant::TypeInfo& from = quant::info(tensor.type);
    // Pieces are of whole blocks of both types: block sizes are powers of two and rows are of whole blocks.
    const uint64_t n_values = tensor.bytes / from.block_bytes * from.block_values;
    const uint64_t piece_bytes = quant::row_bytes(tensor.type, kPieceValues);
    for (uint64_t first = 0; first < n_values;) {
      std::vector<std::future<void>> running;
      for (Piece& piece : pieces_) {
        if (first >= n_values) break;
        const uint64_t count = std::min(kPieceValues, n_values - first);
        const auto bytes =
            source.subspan(first / kPieceValues * piece_bytes, quant::row_bytes(tensor.type, count));
        running.push_back(std::async(std::launch::async, [&piece, &tensor, bytes, to, count] {
          piece.convert(tensor.type, bytes, to, count);
        }));
        first += count;
      }
      for (std::future<void>& done : running) done.wait();
      for (size_t i = 0; i < running.size(); ++i) {
        running[i].get();
        if (!pieces_[i].fits) {
          fail("{}: tensor {} holds a value that {} cannot represent; convert to f32", file_.path(),
               quote(tensor.name), quant::name(to));
        }
        writer_.write(pieces_[i].encoded);
        progress_.advance(quant::row_bytes(tensor.type, pieces_[i].values.size()));
      }
    }
  }

 private:
  const gguf::File& file_;
  gguf::Writer& writer_;
  Progress& progress_;
  std::vector<Piece> pieces_;
};

}  // namespace

quant::Type target_type(const gguf::TensorInfo& tensor, quant::Type target) {
  if (stays_f32(tensor)) return quant::Type::F32;
  if (tensor.shape[0] % quant::info(target).block_values != 0) return quant::Type::F16;
  return target;
}

Result convert(const gguf::File& file, const std::string& path, quant::Type target) {
  refuse_to_overwrite_input(file, path);
  gguf::Writer writer(path);
  write_metadata(file, target, writer);
  Result result;
  uint64_t input_bytes = 0;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    const quant::Type type = target_type(tensor, target);
    writer.add_tensor(tensor.name, tensor.shape, type);
    input_bytes += tensor.bytes;
    ++result.n_tensors;
    result.n_converted += type != tensor.type ? 1 : 0;
    result.n_fallback += type == quant::Type::F16 && target != type ? 1 : 0;
  }
  writer.begin_data();
  Progress progress("converting", input_bytes);
  Converter converter(file, writer, progress);
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    const quant::Type type = target_type(tensor, target);
    if (type == tensor.type) {
      converter.copy(tensor);
    } else {
      converter.convert(tensor, type);
    }
  }
  writer.finish();
  result.bytes = writer.total_bytes();
  return result;
}

}  // namespace redlite::convert
