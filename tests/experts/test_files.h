#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "experts/layout.h"

namespace redlite::experts {

/// Expert files made for a test: no two words alike, at offsets that are no multiple of a
/// page; two triplet sizes; layer 1 has gate and up fused, layer 2 has its down matrices in a second file.
class TestFiles {
 public:
  static constexpr int kLayers = 4;
  static constexpr int kExperts = 8;
  static constexpr int kUsed = 3;

  /// `seed` distinguishes contents and names.
  explicit TestFiles(const std::string& directory, uint32_t seed = 1)
      : paths_{directory + name("a", seed), directory + name("b", seed)} {
    uint64_t end[2] = {96, 32};  // as if a header came first
    const auto tensor = [&](uint32_t shard, int rows, int cols) {
      model::ExpertTensor t;
      t.type = quant::Type::F32;
      t.rows = rows;
      t.cols = cols;
      t.shard = shard;
      t.offset = end[shard];
      t.expert_bytes = static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols) * 4;
      t.expert_stride = t.expert_bytes;
      end[shard] += t.expert_stride * kExperts + 32;
      return t;
    };
    for (int l = 0; l < kLayers; ++l) {
      const int rows = l % 2 == 0 ? 40 : 1200;  // 1200 x 56 floats: 262.5 KiB, more than one chunk
      model::ExpertLayer layer;
      if (l == 1) {
        layer.gate = tensor(0, 2 * rows, 56);
        layer.gate.rows = rows;
        layer.gate.expert_bytes /= 2;
        layer.up = layer.gate;
        layer.up.offset += layer.gate.expert_bytes;
      } else {
        layer.gate = tensor(0, rows, 56);
        layer.up = tensor(0, rows, 56);
      }
      layer.down = tensor(l == 2 ? 1 : 0, 56, rows);
      layers_.push_back(layer);
    }
    for (int s = 0; s < 2; ++s) {
      write(s, end[s] - 32, seed + static_cast<uint32_t>(s));  // the last matrix ends with the file
      mapped_.push_back(std::make_unique<MappedFile>(paths_[s]));
    }
  }
  ~TestFiles() {
    for (const std::string& path : paths_) std::filesystem::remove(path);
  }
  TestFiles(const TestFiles&) = delete;
  TestFiles& operator=(const TestFiles&) = delete;

  ExpertFiles files() const { return {layers_, kExperts, kUsed, {mapped_[0].get(), mapped_[1].get()}}; }
  const std::string& path(int shard) const { return paths_[shard]; }

  /// Overwrites a file in place with words that are all different, and different for another seed.
  void write(int shard, uint64_t bytes, uint32_t seed) const {
    std::vector<uint32_t> words(bytes / 4);
    for (uint32_t i = 0; i < words.size(); ++i) words[i] = (i + seed * 0x1234567u) * 0x9e3779b1u;
    std::ofstream out(paths_[shard], std::ios::binary);
    out.write(reinterpret_cast<const char*>(words.data()), static_cast<std::streamsize>(words.size() * 4));
  }

 private:
  static std::string name(const char* shard, uint32_t seed) {
    return "/experts_" + std::to_string(::getpid()) + "_" + std::to_string(seed) + shard;
  }

  std::string paths_[2];
  std::vector<model::ExpertLayer> layers_;
  std::vector<std::unique_ptr<MappedFile>> mapped_;
};

/// Ends the program when a test hangs: a hang is a failure too.
class Watchdog {
 public:
  explicit Watchdog(int seconds = 300) {
    thread_ = std::thread([this, seconds] {
      std::unique_lock lock(mutex_);
      if (done_.wait_for(lock, std::chrono::seconds(seconds), [this] { return stop_; })) return;
      std::fprintf(stderr, "a test hangs\n");
      std::abort();
    });
  }
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    done_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool stop_ = false;
  std::thread thread_;
};

inline bool same_bytes(const model::Matrix& a, const model::Matrix& b) {
  return a.type == b.type && a.rows == b.rows && a.cols == b.cols &&
         std::memcmp(a.data, b.data, a.bytes()) == 0;
}

inline bool same_expert(const model::Model::Expert& a, const model::Model::Expert& b) {
  return same_bytes(a.gate, b.gate) && same_bytes(a.up, b.up) && same_bytes(a.down, b.down);
}

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace redlite::experts
