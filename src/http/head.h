#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace redlite::http {

/// The most of everything that a client may make the server hold or wait for.
inline constexpr size_t kMaxHeadBytes = 32 << 10;  ///< request line and headers
inline constexpr size_t kMaxHeaders = 100;
inline constexpr size_t kMaxTargetBytes = 8 << 10;

/// A request that is answered with an error before anybody looks at what it wants. The message is one line
/// that says what is wrong with it.
class Refused : public std::runtime_error {
 public:
  Refused(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

struct Header {
  std::string name;  ///< in lower case
  std::string value;
};

/// The request line and headers of an HTTP/1.0 or 1.1 request.
struct Head {
  std::string method;
  std::string path;   ///< as it came, nothing decoded: no route of ours has a '%' in it
  std::string query;  ///< behind the '?', maybe empty
  int minor_version = 1;
  std::vector<Header> headers;

  std::optional<uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;
  bool expects_continue = false;

  /// The value of a header by its name in lower case, or nullptr. Of several with a name (only such as may be
  /// repeated) the first.
  const std::string* find(std::string_view name) const;
  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
};

/// Reads a head, the empty line at its end included. What two readers of HTTP could take for different things
/// is refused instead of guessed at (RFC 9112, sections 2 to 6): lines that end in a bare LF, folded headers,
/// blanks before a colon, control characters, two lengths, a length together with an encoding, encodings
/// other than "chunked", two Hosts. Throws Refused.
Head parse_head(std::string_view bytes);

/// The phrase of a status code, such as "Not Found".
std::string_view reason_phrase(int status);

/// Whether two texts are the same but for the case of ASCII letters.
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace redlite::http
