#include "session/state_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/file.h"
#include "base/output.h"

namespace redlite::session {
namespace {

static_assert(std::endian::native == std::endian::little, "state files are little-endian");

constexpr char kMagic[8] = {'R', 'L', 'S', 'T', 'A', 'T', 'E', '1'};
constexpr size_t kPiece = size_t{1} << 18;
/// Fast, for keys and values hardly shrink; a window of at most 8 MiB bounds what reading takes.
constexpr int kLevel = 1, kMostWindowLog = 23;

struct FixedHeader {
  char magic[8];
  uint64_t fingerprint[2];
  uint64_t mark_bytes;
  uint64_t position_bytes;
  uint32_t n_tokens;
  uint32_t n_marks;
  uint64_t content_bytes;  ///< compressed
  uint64_t content_hash;   ///< XXH3 of the content before compression
  uint64_t head_hash;      ///< XXH3 of what is before it, the tokens and the marks' positions
};
static_assert(sizeof(FixedHeader) == 72 && std::is_trivially_copyable_v<FixedHeader>);

class Hash {
 public:
  Hash() { XXH3_64bits_reset(state_.get()); }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }
  uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
};

uint64_t head_hash(const FixedHeader& header, std::span<const std::byte> tokens,
                   std::span<const std::byte> marks) {
  Hash hash;
  hash.add(std::as_bytes(std::span(&header, 1)).first(offsetof(FixedHeader, head_hash)));
  hash.add(tokens);
  hash.add(marks);
  return hash.value();
}

/// A new file that only the user can read, written from its beginning to its end.
class Output {
 public:
  explicit Output(const std::string& path) : name_(path) {
    fd_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) fail("{}: cannot create: {}", name_.text(), std::strerror(errno));
  }
  ~Output() { ::close(fd_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::span<const std::byte> bytes) {
    write_at(offset_, bytes);
    offset_ += bytes.size();
  }
  void write_at(uint64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("{}: writing failed: {}", name_.text(), std::strerror(errno));
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
  }
  uint64_t offset() const { return offset_; }
  void finish() {
    if (::fsync(fd_) != 0) fail("{}: writing failed: {}", name_.text(), std::strerror(errno));
    name_.rename();
  }

 private:
  TemporaryName name_;
  int fd_ = -1;
  uint64_t offset_ = 0;
};

class Compressor {
 public:
  explicit Compressor(Output& out) : out_(out), context_(ZSTD_createCCtx()), buffer_(kPiece) {
    RL_CHECK(context_ != nullptr);
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kLevel);
  }
  void add(std::span<const std::byte> bytes) {
    hash_.add(bytes);
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    while (in.pos < in.size) step(in, ZSTD_e_continue);
  }
  void finish() {
    ZSTD_inBuffer in{nullptr, 0, 0};
    while (step(in, ZSTD_e_end) != 0) {
    }
  }
  uint64_t hash() const { return hash_.value(); }

 private:
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };

  size_t step(ZSTD_inBuffer& in, ZSTD_EndDirective directive) {
    ZSTD_outBuffer out{buffer_.data(), buffer_.size(), 0};
    const size_t left = ZSTD_compressStream2(context_.get(), &out, &in, directive);
    if (ZSTD_isError(left)) fail("compressing a state failed: {}", ZSTD_getErrorName(left));
    out_.write(std::span(buffer_).first(out.pos));
    return left;
  }

  Output& out_;
  std::unique_ptr<ZSTD_CCtx, Free> context_;
  std::vector<std::byte> buffer_;
  Hash hash_;
};

/// The compressed content from `offset` to the end of a file.
class Decompressor {
 public:
  Decompressor(const File& file, uint64_t offset)
      : file_(file), offset_(offset), context_(ZSTD_createDCtx()), buffer_(kPiece) {
    RL_CHECK(context_ != nullptr);
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMostWindowLog);
  }
  void fill(std::span<std::byte> bytes) {
    ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
    while (out.pos < out.size) {
      if (!step(out)) damaged();
    }
    hash_.add(bytes);
  }
  /// There is neither more content nor anything behind it.
  void expect_end() {
    std::byte beyond;
    ZSTD_outBuffer out{&beyond, 1, 0};
    while (step(out)) {
      if (out.pos > 0) damaged();
    }
    if (!frame_ended_ || in_.pos < in_.size) damaged();
  }
  uint64_t hash() const { return hash_.value(); }
  [[noreturn]] void damaged() const { fail("{}: the state is damaged", file_.path()); }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };

  /// False at the end of the frame or of the file.
  bool step(ZSTD_outBuffer& out) {
    if (frame_ended_) return false;
    if (in_.pos == in_.size && offset_ < file_.size()) {
      const size_t n = std::min<uint64_t>(kPiece, file_.size() - offset_);
      file_.read_exactly(offset_, std::span(buffer_).first(n));
      offset_ += n;
      in_ = {buffer_.data(), n, 0};
    }
    const size_t read = in_.pos, written = out.pos;
    const size_t result = ZSTD_decompressStream(context_.get(), &out, &in_);
    if (ZSTD_isError(result)) damaged();
    frame_ended_ = result == 0;
    return frame_ended_ || in_.pos > read || out.pos > written;
  }

  const File& file_;
  uint64_t offset_;
  std::unique_ptr<ZSTD_DCtx, Free> context_;
  std::vector<std::byte> buffer_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool frame_ended_ = false;
  Hash hash_;
};

FixedHeader read_head(const File& file, const StateShape& shape, StateHead& head) {
  const std::string& path = file.path();
  FixedHeader header;
  if (file.size() < sizeof(header)) fail("{}: no state file: {} bytes", path, file.size());
  file.read_exactly(0, std::as_writable_bytes(std::span(&header, 1)));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) fail("{}: no state file", path);
  if (!std::ranges::equal(header.fingerprint, shape.fingerprint) || header.mark_bytes != shape.mark_bytes ||
      header.position_bytes != shape.position_bytes) {
    throw ForeignState(fmt::format("{}: a state of another model, program or settings", path));
  }
  if (header.n_tokens == 0 || header.n_tokens > static_cast<uint32_t>(shape.capacity))
    fail("{}: a state of {} tokens; the context holds {}", path, header.n_tokens, shape.capacity);
  if (header.n_marks > kMostMarks) fail("{}: a state with {} marks", path, header.n_marks);
  const uint64_t list_bytes = (uint64_t{header.n_tokens} + header.n_marks) * sizeof(int32_t);
  const uint64_t content = sizeof(header) + list_bytes;
  if (content > file.size() || header.content_bytes != file.size() - content)
    fail("{}: the state file is truncated or damaged", path);

  head.tokens.resize(header.n_tokens);
  head.marks.resize(header.n_marks);
  const auto tokens = std::as_writable_bytes(std::span(head.tokens));
  const auto marks = std::as_writable_bytes(std::span(head.marks));
  file.read_exactly(sizeof(header), tokens);
  file.read_exactly(sizeof(header) + tokens.size(), marks);
  if (head_hash(header, tokens, marks) != header.head_hash) fail("{}: the state is damaged", path);
  for (const model::Token token : head.tokens) {
    if (token < 0 || token >= shape.n_vocab) fail("{}: a state with a token {}", path, token);
  }
  int before = 0;
  for (const int mark : head.marks) {
    if (mark <= before || mark > static_cast<int>(header.n_tokens))
      fail("{}: a state with a mark at {}", path, mark);
    before = mark;
  }
  return header;
}

}  // namespace

void write_state_file(const std::string& path, const StateShape& shape, const StateHead& head,
                      std::span<const std::byte> positions,
                      std::span<const std::span<const std::byte>> marks) {
  RL_CHECK(positions.size() == head.tokens.size() * shape.position_bytes &&
           marks.size() == head.marks.size());
  FixedHeader header{};
  std::ranges::copy(kMagic, header.magic);
  std::ranges::copy(shape.fingerprint, header.fingerprint);
  header.mark_bytes = shape.mark_bytes;
  header.position_bytes = shape.position_bytes;
  header.n_tokens = static_cast<uint32_t>(head.tokens.size());
  header.n_marks = static_cast<uint32_t>(marks.size());
  const auto token_bytes = std::as_bytes(std::span(head.tokens));
  const auto mark_bytes = std::as_bytes(std::span(head.marks));

  Output out(path);
  out.write(std::as_bytes(std::span(&header, 1)));
  out.write(token_bytes);
  out.write(mark_bytes);
  const uint64_t content = out.offset();
  Compressor compressor(out);
  compressor.add(positions);
  for (const std::span<const std::byte> mark : marks) {
    RL_CHECK(mark.size() == shape.mark_bytes);
    compressor.add(mark);
  }
  compressor.finish();
  header.content_bytes = out.offset() - content;
  header.content_hash = compressor.hash();
  header.head_hash = head_hash(header, token_bytes, mark_bytes);
  out.write_at(0, std::as_bytes(std::span(&header, 1)));
  out.finish();
}

StateHead read_state_head(const std::string& path, const StateShape& shape) {
  StateHead head;
  read_head(File(path), shape, head);
  return head;
}

StateContent read_state_file(const std::string& path, const StateShape& shape, StateHead& head) {
  const File file(path);
  const FixedHeader header = read_head(file, shape, head);
  StateContent content;
  content.positions = AlignedBuffer<std::byte>(head.tokens.size() * shape.position_bytes);
  Decompressor decompressor(file, file.size() - header.content_bytes);
  decompressor.fill(content.positions.span());
  for (size_t i = 0; i < head.marks.size(); ++i) {
    content.marks.emplace_back(shape.mark_bytes);
    decompressor.fill(content.marks.back().span());
  }
  decompressor.expect_end();
  if (decompressor.hash() != header.content_hash) decompressor.damaged();
  return content;
}

}  // namespace redlite::session
