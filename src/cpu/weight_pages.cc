#include "cpu/weight_pages.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <span>
#include <utility>

#include "base/huge_pages.h"

namespace redlite::cpu {

namespace {

using Extent = std::pair<uintptr_t, uintptr_t>;  // first address and the one behind the last

/// Where dense weights lie, neighbours joined. An embedding that is not the output, too, is left out, as only
/// some rows of it are read.
std::vector<Extent> dense_extents(const model::Model& model) {
  constexpr uintptr_t kPage = 4096;  // tensors are aligned: gaps are smaller
  const model::Weights& w = model.weights();
  std::vector<Extent> tensors, extents;
  for (const std::span<const std::byte> bytes : model.dense_tensors()) {
    const auto first = reinterpret_cast<uintptr_t>(bytes.data());
    if (bytes.data() != w.token_embd.data || w.output.data == w.token_embd.data)
      tensors.emplace_back(first, first + bytes.size());
  }
  std::ranges::sort(tensors);
  for (const Extent& tensor : tensors) {
    if (extents.empty() || tensor.first > extents.back().second + kPage)
      extents.push_back(tensor);
    else
      extents.back().second = std::max(extents.back().second, tensor.second);
  }
  return extents;
}

}  // namespace

/// The blocks of dense weights, then those of the rest if the experts are mapped and there is room. With room
/// dense weights' first and last blocks are among them, which hold other bytes, too: a layer's are 20 MB or
/// so between experts, and its router and shared expert lie at the ends.
std::vector<WeightPages::Block> WeightPages::blocks_of(const model::Model& model, bool experts, bool room) {
  std::vector<Block> blocks;
  std::set<uintptr_t> dense;
  const auto add = [&](const MappedFile& shard, Extent extent, bool is_dense) {
    const auto begin = reinterpret_cast<uintptr_t>(shard.bytes().data()), end = begin + shard.bytes().size();
    uintptr_t block = extent.first / kHugePage * kHugePage;
    if (block < begin || (block < extent.first && !(is_dense && room))) block += kHugePage;
    const uintptr_t most = is_dense && room ? extent.second + kHugePage - 1 : extent.second;
    for (; block + kHugePage <= std::min(most, end); block += kHugePage) {
      if (is_dense ? dense.insert(block).second : !dense.contains(block))
        blocks.push_back(
            {shard.bytes().data() + (block - begin), shard.file().descriptor(), block - begin, is_dense});
    }
  };
  const std::vector<Extent> extents = dense_extents(model);
  for (const bool is_dense : {true, false}) {
    for (const MappedFile& shard : model.file().shards()) {
      const auto begin = reinterpret_cast<uintptr_t>(shard.bytes().data()),
                 end = begin + shard.bytes().size();
      if (!is_dense && experts && room) add(shard, {begin, end}, false);
      for (const Extent& extent : extents) {
        if (is_dense && extent.first >= begin && extent.second <= end) add(shard, extent, true);
      }
    }
  }
  return blocks;
}

WeightPages::WeightPages(const model::Model& model, bool experts, bool room)
    : blocks_(huge_pages_available() ? blocks_of(model, experts, room) : std::vector<Block>()), room_(room) {
  // The model gave the advice for its dense weights before it touched any, their first and last blocks apart.
  for (const Block& block : blocks_) {
    if (block.dense && !experts) advise_huge_pages(block.data, kHugePage);
  }
  for (const MappedFile& shard : model.file().shards()) {
    if (experts) advise_huge_pages(shard.bytes().data(), shard.bytes().size());
  }
  thread_ = std::thread([this] { work(); });
}

WeightPages::~WeightPages() {
  stop_ = true;
  thread_.join();
}

void WeightPages::work() {
  for (const Block& block : blocks_) {
    if (stop_) break;
    populate(block.data);
    if (is_huge_page(block.data)) {
      huge_ += kHugePage;
    } else if (read_again(block)) {
      huge_ += kHugePage;
      read_again_ += kHugePage;
    } else if (block.dense && room_ && copy_to_huge_page(block.data)) {
      copied_ += kHugePage;
    }
    touch(block.data);
    seen_ += kHugePage;
  }
  seen_.notify_all();
}

/// Whether the block was read again into a huge page. After a few attempts that failed, or took long, none
/// are made.
bool WeightPages::read_again(const Block& block) {
  constexpr int kMostFailures = 4;
  constexpr std::chrono::milliseconds kSlow{10};  // 200 MB/s
  if (failures_ >= kMostFailures) return false;
  const auto start = std::chrono::steady_clock::now();
  drop_from_page_cache(block.data, block.descriptor, block.offset);
  populate(block.data);
  const bool huge = is_huge_page(block.data);
  const bool worked = huge && std::chrono::steady_clock::now() - start < kSlow;
  failures_ = worked ? std::max(failures_ - 1, 0) : failures_ + 1;
  return huge;
}

WeightPages::Report WeightPages::report() const {
  return {blocks_.size() * kHugePage, seen_, huge_, read_again_, copied_};
}

void WeightPages::wait() {
  for (uint64_t seen = seen_; seen < blocks_.size() * kHugePage; seen = seen_) seen_.wait(seen);
}

}  // namespace redlite::cpu
