#include "bench/replay.h"

#include <barrier>
#include <chrono>
#include <thread>
#include <utility>

#include "bench/traffic.h"
#include "machine/memory_bandwidth.h"

namespace redlite::bench {

Replay::Replay(const model::Model& model, Find find, int threads)
    : used_(static_cast<size_t>(model.config().n_experts_used)),
      find_(std::move(find)),
      threads_(static_cast<size_t>(threads)),
      dense_(dense_matrices(model.weights())) {}

double Replay::read(std::span<const TokenExperts> tokens) const {
  std::chrono::steady_clock::time_point began;
  std::barrier start(static_cast<ptrdiff_t>(threads_),
                     [&]() noexcept { began = std::chrono::steady_clock::now(); });
  {
    std::vector<std::jthread> readers;
    for (size_t thread = 0; thread < threads_; ++thread) {
      readers.emplace_back([&, thread] {
        start.arrive_and_wait();
        for (const TokenExperts& experts : tokens) read_token(experts, thread);
      });
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void Replay::read_token(const TokenExperts& experts, size_t thread) const {
  const auto read_part = [&](const model::Matrix& matrix) {
    const size_t first = matrix.bytes() * thread / threads_, end = matrix.bytes() * (thread + 1) / threads_;
    machine::read_memory({matrix.data + first, end - first});
  };
  for (const model::Matrix& matrix : dense_) read_part(matrix);
  for (size_t i = 0; i < experts.size(); ++i) {
    const std::optional<model::Model::Expert> expert = find_(static_cast<int>(i / used_), experts[i]);
    if (!expert) continue;
    for (const model::Matrix& matrix : {expert->gate, expert->up, expert->down}) read_part(matrix);
  }
}

}  // namespace redlite::bench
