#include "http/head.h"

#include <algorithm>
#include <array>

namespace redlite::http {
namespace {

constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// A character of a token (RFC 9110, 5.6.2): of methods and header names.
bool is_token_char(char c) {
  if ((c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z')) return true;
  return c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

/// Takes the text before the next CRLF. Throws Refused where a line ends otherwise.
std::string_view take_line(std::string_view& rest) {
  const size_t end = rest.find_first_of("\r\n");
  if (end == std::string_view::npos || rest[end] != '\r' || end + 1 >= rest.size() || rest[end + 1] != '\n')
    throw Refused(400, "a line of the request's head does not end in CR LF");
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + 2);
  return line;
}

void parse_request_line(std::string_view line, Head& head) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || line.find(' ', first + 1) != last)
    throw Refused(400, "the request line is not METHOD TARGET HTTP/1.1");
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (!is_token(method) || method.size() > 16) throw Refused(400, "the request's method is no word");
  if (version == "HTTP/1.0") {
    head.minor_version = 0;
  } else if (version != "HTTP/1.1") {
    throw Refused(version.starts_with("HTTP/") ? 505 : 400, "this server speaks HTTP/1.1 and HTTP/1.0");
  }
  if (target.size() > kMaxTargetBytes) throw Refused(414, "the request's target is longer than 8 KiB");
  if (!target.starts_with('/')) throw Refused(400, "the request's target does not begin with '/'");
  if (!std::all_of(target.begin(), target.end(), [](char c) { return c > 0x20 && c < 0x7f && c != '#'; }))
    throw Refused(400, "the request's target has a character that must be escaped");
  head.method = method;
  const size_t question = target.find('?');
  head.path = target.substr(0, question);
  if (question != std::string_view::npos) head.query = target.substr(question + 1);
}

Header parse_header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    throw Refused(400, "a header is not NAME: VALUE");
  Header header;
  header.name = line.substr(0, colon);
  std::transform(header.name.begin(), header.name.end(), header.name.begin(), lower);
  std::string_view value = line.substr(colon + 1);
  const size_t begin = value.find_first_not_of(" \t");
  value =
      begin == std::string_view::npos ? "" : value.substr(begin, value.find_last_not_of(" \t") - begin + 1);
  const auto allowed = [](char c) {
    return c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  };
  if (!std::all_of(value.begin(), value.end(), allowed))
    throw Refused(400, "the header " + header.name + " has a control character in it");
  header.value = value;
  return header;
}

/// Headers of which a second one would make the request mean different things to different readers.
constexpr std::array<std::string_view, 9> kSingle = {
    "authorization", "content-encoding", "content-length",    "content-type", "expect",
    "host",          "origin",           "transfer-encoding", "x-api-key"};

void refuse_repeated(const Head& head) {
  for (const std::string_view name : kSingle) {
    const auto same = [&](const Header& h) { return h.name == name; };
    if (std::count_if(head.headers.begin(), head.headers.end(), same) > 1)
      throw Refused(400, "the header " + std::string(name) + " is there more than once");
  }
}

/// Whether a comma-separated list has a word.
bool lists(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view item = list.substr(0, comma);
    const size_t begin = item.find_first_not_of(" \t");
    if (begin != std::string_view::npos) {
      item = item.substr(begin, item.find_last_not_of(" \t") - begin + 1);
      if (equal_ignoring_case(item, word)) return true;
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

uint64_t parse_length(std::string_view text) {
  const bool digits = !text.empty() && text.size() <= 18 &&
                      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) throw Refused(400, "content-length is not a number");
  uint64_t value = 0;
  for (const char c : text) value = value * 10 + static_cast<uint64_t>(c - '0');
  return value;
}

void read_framing(Head& head) {
  const std::string* length = head.find("content-length");
  const std::string* encoding = head.find("transfer-encoding");
  if (length != nullptr && encoding != nullptr)
    throw Refused(400, "content-length and transfer-encoding exclude each other");
  if (length != nullptr) head.content_length = parse_length(*length);
  if (encoding != nullptr) {
    if (head.minor_version == 0 || !equal_ignoring_case(*encoding, "chunked"))
      throw Refused(501, "the only transfer-encoding known is chunked, in HTTP/1.1");
    head.chunked = true;
  }
  const std::string* coding = head.find("content-encoding");
  if (coding != nullptr && !equal_ignoring_case(*coding, "identity"))
    throw Refused(415, "compressed requests are not accepted");

  const std::string* connection = head.find("connection");
  const std::string_view options = connection != nullptr ? std::string_view(*connection) : "";
  head.keep_alive = head.minor_version == 0 ? lists(options, "keep-alive") : !lists(options, "close");

  if (const std::string* expect = head.find("expect"); expect != nullptr && head.minor_version == 1) {
    if (!equal_ignoring_case(*expect, "100-continue"))
      throw Refused(417, "expect: only 100-continue is known");
    head.expects_continue = true;
  }
}

}  // namespace

const std::string* Head::find(std::string_view name) const {
  for (const Header& header : headers) {
    if (header.name == name) return &header.value;
  }
  return nullptr;
}

Head parse_head(std::string_view bytes) {
  Head head;
  parse_request_line(take_line(bytes), head);
  while (true) {
    if (!bytes.empty() && (bytes[0] == ' ' || bytes[0] == '\t'))
      throw Refused(400, "a header is folded over several lines");
    const std::string_view line = take_line(bytes);
    if (line.empty()) break;
    if (head.headers.size() == kMaxHeaders) throw Refused(431, "the request has more than 100 headers");
    head.headers.push_back(parse_header(line));
  }
  refuse_repeated(head);
  if (head.minor_version == 1 && head.find("host") == nullptr)
    throw Refused(400, "the request has no Host header");
  read_framing(head);
  return head;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 406:
      return "Not Acceptable";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    case 529:
      return "Overloaded";
    default:
      return "Status";
  }
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace redlite::http
