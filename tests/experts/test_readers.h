#pragma once

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "experts/reader.h"

namespace redlite::experts {

/// What goes wrong how often, in thousandths of the requests.
struct Faults {
  int short_read = 0;
  int interrupted = 0;  ///< EINTR
  int again = 0;        ///< EAGAIN
  int io_error = 0;     ///< EIO
  int full_queue = 0;   ///< submit() refuses
  int held_back = 0;    ///< a completion comes later, out of order
};

/// A reader that injects faults into another.
class FaultyReader final : public Reader {
 public:
  FaultyReader(std::unique_ptr<Reader> reader, Faults faults, uint32_t seed)
      : faults_(faults), random_(seed), reader_(std::move(reader)) {}

  bool submit(const ReadRequest& request) override {
    if (happens(faults_.full_queue)) return false;
    if (happens(faults_.interrupted)) return hold({request.tag, -EINTR});
    if (happens(faults_.again)) return hold({request.tag, -EAGAIN});
    if (happens(faults_.io_error)) return hold({request.tag, -EIO});
    // A direct read must keep its length, so every short one is done in full and reported short, with the
    // bytes behind its end spoilt.
    if (!reader_->submit(request)) return false;
    if (happens(faults_.short_read)) {
      shortened_.push_back({request, 1 + static_cast<size_t>(random_()) % request.bytes});
    }
    return true;
  }

  size_t complete(std::span<ReadCompletion> out, bool wait) override {
    std::vector<ReadCompletion> arrived(out.size());
    const size_t n = reader_->complete(arrived, wait && held_.empty());
    for (size_t i = 0; i < n; ++i) held_.push_back(shorten(arrived[i]));
    size_t given = 0;
    for (size_t i = 0; i < held_.size() && given < out.size();) {
      if (happens(faults_.held_back)) {
        ++i;
      } else {
        out[given++] = held_[i];
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (wait && given == 0 && !held_.empty()) {
      out[given++] = held_.back();  // last in, first out
      held_.pop_back();
    }
    return given;
  }

  std::string_view name() const override { return "faulty"; }

 private:
  struct Shortened {
    ReadRequest request;
    size_t bytes;
  };

  bool happens(int thousandths) { return static_cast<int>(random_() % 1000) < thousandths; }

  bool hold(ReadCompletion completion) {
    held_.push_back(completion);
    return true;
  }

  ReadCompletion shorten(ReadCompletion c) {
    const auto s = std::find_if(shortened_.begin(), shortened_.end(),
                                [&](const Shortened& x) { return x.request.tag == c.tag; });
    if (s == shortened_.end()) return c;
    if (c.result > static_cast<int64_t>(s->bytes)) {
      std::fill(s->request.into + s->bytes, s->request.into + c.result, std::byte{0xee});
      c.result = static_cast<int64_t>(s->bytes);
    }
    shortened_.erase(s);
    return c;
  }

  Faults faults_;
  std::mt19937 random_;
  std::vector<ReadCompletion> held_;
  std::vector<Shortened> shortened_;
  std::unique_ptr<Reader> reader_;
};

/// A reader that holds few requests.
class ShallowReader final : public Reader {
 public:
  ShallowReader(std::unique_ptr<Reader> reader, int depth) : reader_(std::move(reader)), depth_(depth) {}

  bool submit(const ReadRequest& request) override {
    if (in_flight_ == depth_ || !reader_->submit(request)) return false;
    ++in_flight_;
    return true;
  }
  size_t complete(std::span<ReadCompletion> out, bool wait) override {
    const size_t n = reader_->complete(out, wait);
    in_flight_ -= static_cast<int>(n);
    return n;
  }
  std::string_view name() const override { return "shallow"; }

 private:
  std::unique_ptr<Reader> reader_;
  int depth_;
  int in_flight_ = 0;
};

/// A reader that tells how many requests were in flight at most.
class CountingReader final : public Reader {
 public:
  CountingReader(std::unique_ptr<Reader> reader, int& most) : reader_(std::move(reader)), most_(most) {}

  bool submit(const ReadRequest& request) override {
    if (!reader_->submit(request)) return false;
    most_ = std::max(most_, ++in_flight_);
    return true;
  }
  size_t complete(std::span<ReadCompletion> out, bool wait) override {
    const size_t n = reader_->complete(out, wait);
    in_flight_ -= static_cast<int>(n);
    return n;
  }
  std::string_view name() const override { return "counting"; }

 private:
  std::unique_ptr<Reader> reader_;
  int& most_;
  int in_flight_ = 0;
};

/// A reader that completes nothing until the test says so (or somebody waits for it).
class GatedReader final : public Reader {
 public:
  struct Gate {
    bool open = false;
    int submitted = 0;
  };
  GatedReader(std::unique_ptr<Reader> reader, std::shared_ptr<Gate> gate)
      : reader_(std::move(reader)), gate_(std::move(gate)) {}

  bool submit(const ReadRequest& request) override {
    if (!reader_->submit(request)) return false;
    ++gate_->submitted;
    ++in_flight_;
    return true;
  }
  size_t complete(std::span<ReadCompletion> out, bool wait) override {
    if (!wait && !gate_->open) return 0;
    size_t n = 0;
    do {  // an open gate lets everything arrive at once
      const size_t arrived = reader_->complete(out.subspan(n), true);
      n += arrived;
      in_flight_ -= static_cast<int>(arrived);
    } while (gate_->open && in_flight_ > 0 && n < out.size());
    return n;
  }
  std::string_view name() const override { return "gated"; }

 private:
  std::unique_ptr<Reader> reader_;
  std::shared_ptr<Gate> gate_;
  int in_flight_ = 0;
};

}  // namespace redlite::experts
