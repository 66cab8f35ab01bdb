#include "constrain/automaton.h"

#include <algorithm>

#include "base/error.h"
#include "constrain/string_automaton.h"

namespace redlite::constrain {
namespace {

size_t mix(size_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

}  // namespace

size_t Automaton::FrameHash::operator()(const Frame& f) const {
  return mix(mix(f.node, f.round), static_cast<uint32_t>(f.below));
}

Automaton::Automaton(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
  close(grammar_->start(), kBottom);
  start_ = intern_closure();
}

std::span<const Automaton::Place> Automaton::places(Config config) const {
  const ConfigInfo& info = configs_[static_cast<size_t>(config)];
  return {all_places_.data() + info.begin, info.count};
}

Automaton::Config Automaton::compute_next(Config config, uint8_t byte) {
  const size_t n = places(config).size();
  work_ += n;
  uint8_t first = 0, last = 255;  // the bytes around this one that lead to the same
  const auto narrow = [&](uint8_t low, uint8_t high) {
    first = std::max(first, low);
    last = std::min(last, high);
  };
  for (size_t i = 0; i < n; ++i) {
    const Place place = places(config)[i];
    const Node& node = grammar_->node(place.node);
    if (node.kind == Node::Kind::Bytes) {
      if (byte < node.low) {
        narrow(0, node.low - 1);
      } else if (byte > node.high) {
        narrow(node.high + 1, 255);
      } else {
        narrow(node.low, node.high);
        close(node.next, place.frame);
      }
      continue;
    }
    const auto [low, high] = StringAutomaton::alike(place.state, byte);
    narrow(low, high);
    const uint8_t state = StringAutomaton::step(place.state, byte);
    if (state == StringAutomaton::kDead) continue;
    if (state == StringAutomaton::kEnd) {
      if (place.characters >= node.min) close(node.next, place.frame);
      continue;
    }
    Place moved = place;
    moved.state = state;
    if (place.state == StringAutomaton::kStart) {
      if (place.characters == node.max) continue;
      // Without a most, only whether the least is reached matters.
      moved.characters =
          node.max == kNoLimit ? std::min(place.characters + 1, node.min) : place.characters + 1;
    }
    closure_.places.push_back(moved);
  }
  const Config out = intern_closure();
  Config* const steps = steps_[static_cast<size_t>(config)].get();
  std::fill(steps + first, steps + last + 1, out);
  return out;
}

Automaton::Config Automaton::after_string(const Place& place) {
  close(grammar_->node(place.node).next, place.frame);
  return intern_closure();
}

Automaton::Config Automaton::subset(std::span<const Place> places, bool may_end) {
  closure_.places.assign(places.begin(), places.end());
  closure_.may_end = may_end;
  return intern_closure();
}

int32_t Automaton::push(NodeId node, uint32_t round, int32_t below) {
  // Nothing is left to do where a call comes last: deep recursion of that kind needs no stack.
  if (round == 0 && grammar_->node(node).kind == Node::Kind::Return) return below;
  const Frame frame{node, round, below};
  const auto [found, is_new] = frame_ids_.try_emplace(frame, static_cast<int32_t>(frames_.size()));
  if (is_new) {
    frames_.push_back(frame);
    bytes_ += 4 * sizeof(Frame) + 32;
  }
  return found->second;
}

void Automaton::enter_round(NodeId loop, uint32_t round, int32_t below) {
  const NodeId body = grammar_->node(loop).other;
  if (grammar_->productive(body)) closure_.todo.emplace_back(body, push(loop, round, below));
}

void Automaton::go_back(int32_t frame) {
  if (frame == kBottom) {
    closure_.may_end = true;
    return;
  }
  const Frame f = frames_[static_cast<size_t>(frame)];
  if (f.round == 0) {
    closure_.todo.emplace_back(f.node, f.below);
    return;
  }
  const Node& loop = grammar_->node(f.node);
  // Without a most, rounds beyond the least are all alike.
  const uint32_t after = loop.max == kNoLimit && f.round >= loop.min ? f.round : f.round + 1;
  if (f.round < loop.max) enter_round(f.node, after, f.below);
  if (f.round >= loop.min) closure_.todo.emplace_back(loop.next, f.below);
}

/// What leads on without a byte may lead in circles, and many places to the same one. Beyond a limit nothing
/// new is followed.
bool Automaton::first_visit(NodeId node, int32_t frame) {
  const uint64_t key = uint64_t{node} << 32 | static_cast<uint32_t>(frame);
  for (size_t slot = mix(0, key) >> 32;; ++slot) {  // the high bits depend on all of the key
    Seen& seen = closure_.seen[slot % kSeenSlots];
    if (seen.round != closure_.round) {
      if (++closure_.n_seen > 8 * max_places_) return false;
      seen = {key, closure_.round};
      return true;
    }
    if (seen.key == key) return false;
  }
}

void Automaton::close(NodeId first, int32_t first_frame) {
  closure_.todo.emplace_back(first, first_frame);
  while (!closure_.todo.empty()) {
    const auto [id, frame] = closure_.todo.back();
    closure_.todo.pop_back();
    if (!grammar_->productive(id)) continue;
    if (closure_.places.size() > 2 * max_places_ || !first_visit(id, frame)) continue;
    const Node& node = grammar_->node(id);
    ++work_;
    switch (node.kind) {
      case Node::Kind::Bytes:
        closure_.places.push_back({id, frame, 0, 0});
        break;
      case Node::Kind::String:
        closure_.places.push_back({id, frame, 0, node.state});
        break;
      case Node::Kind::Split:
        closure_.todo.emplace_back(node.other, frame);
        closure_.todo.emplace_back(node.next, frame);
        break;
      case Node::Kind::Call:
        closure_.todo.emplace_back(node.other, push(node.next, 0, frame));
        break;
      case Node::Kind::Loop:
        if (node.min == 0) closure_.todo.emplace_back(node.next, frame);
        enter_round(id, 1, frame);
        break;
      case Node::Kind::Return:
        go_back(frame);
        break;
      case Node::Kind::Never:
        break;
    }
  }
}

Automaton::Config Automaton::intern_closure() {
  std::vector<Place>& places = closure_.places;
  if (places.size() > max_places_) places.resize(max_places_);
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  const bool may_end = closure_.may_end;
  const Config out = places.empty() && !may_end ? kDead : intern(places, may_end);
  places.clear();
  closure_.may_end = false;
  ++closure_.round;
  closure_.n_seen = 0;
  return out;
}

Automaton::Config Automaton::intern(std::span<const Place> places, bool may_end) {
  size_t hash = may_end;
  for (const Place& p : places) {
    hash = mix(mix(hash, uint64_t{p.node} << 32 | static_cast<uint32_t>(p.frame)),
               uint64_t{p.characters} << 8 | p.state);
  }
  const auto [begin, end] = config_ids_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const std::span<const Place> known = this->places(it->second);
    if (may_end == this->may_end(it->second) &&
        std::equal(known.begin(), known.end(), places.begin(), places.end()))
      return it->second;
  }
  const auto id = static_cast<Config>(configs_.size());
  config_ids_.emplace(hash, id);
  configs_.push_back({all_places_.size(), static_cast<uint32_t>(places.size()), may_end});
  all_places_.insert(all_places_.end(), places.begin(), places.end());
  steps_.push_back(std::make_unique<Config[]>(256));
  std::fill_n(steps_.back().get(), 256, kUnknown);
  bytes_ += 256 * sizeof(Config) + places.size() * sizeof(Place) + 128;
  return id;
}

void Automaton::clear() {
  frames_.clear();
  frame_ids_.clear();
  all_places_.clear();
  configs_.clear();
  steps_.clear();
  config_ids_.clear();
  bytes_ = 0;
}

Automaton::Config Automaton::restart(Config config) {
  std::vector<Place> kept(places(config).begin(), places(config).end());
  const bool end = may_end(config);
  // Frames stand behind those below them.
  const std::vector<Frame> old = std::move(frames_);
  std::vector<int32_t> moved(old.size(), kBottom);
  std::vector<bool> used(old.size());
  for (const Place& place : kept)
    if (place.frame != kBottom) used[static_cast<size_t>(place.frame)] = true;
  for (size_t i = old.size(); i-- > 0;)
    if (used[i] && old[i].below != kBottom) used[static_cast<size_t>(old[i].below)] = true;
  clear();
  const auto new_id = [&](int32_t id) { return id == kBottom ? kBottom : moved[static_cast<size_t>(id)]; };
  for (size_t i = 0; i < old.size(); ++i)
    if (used[i]) moved[i] = push(old[i].node, old[i].round, new_id(old[i].below));
  for (Place& place : kept) place.frame = new_id(place.frame);
  return subset(kept, end);
}

}  // namespace redlite::constrain
