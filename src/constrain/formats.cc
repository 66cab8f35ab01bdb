#include <array>
#include <string>

#include "constrain/regex.h"

namespace redlite::constrain {
namespace {

// Narrower than the formats where their full form is of no use, never wider. No lookahead is needed: what
// depends on something else is written out.
#define RL_DATE                                                                                             \
  "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-" \
  "9]|"                                                                                                     \
  "1\\d|2[0-8]))|\\d\\d(?:0[48]|[2468][048]|[13579][26])-02-29)"
#define RL_TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define RL_CLOCK "T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S)"
#define RL_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define RL_HOST "(?:" RL_LABEL "\\.){0,4}[A-Za-z]{2,20}"
#define RL_BYTE "(?:\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])"

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kFormats = {{
    {"date", "^" RL_DATE "$"},
    {"time", "^" RL_TIME "$"},
    {"date-time", "^" RL_DATE "T" RL_TIME "$"},
    {"duration",
     "^P(?:\\d{1,9}W|(?:\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}D)(?:" RL_CLOCK
     ")?|" RL_CLOCK ")$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"email", "^[A-Za-z0-9_+-]{1,30}(?:\\.[A-Za-z0-9_+-]{1,30})?@" RL_LABEL "\\." RL_HOST "$"},
    {"hostname", "^" RL_HOST "$"},
    {"ipv4", "^(?:" RL_BYTE "\\.){3}" RL_BYTE "$"},
    {"ipv6",
     "^(?:(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|(?:[0-9a-fA-F]{1,4}:){1,4}(?::[0-9a-fA-F]{1,4}){1,3}|::"
     "(?:1|ffff:(?:" RL_BYTE "\\.){3}" RL_BYTE ")?)$"},
    {"uri", "^https?://" RL_HOST
            "(?::[1-9]\\d{0,3})?(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/"
            "-]*)?(?:#[A-Za-z0-9._~-]*)?$"},
}};

#undef RL_DATE
#undef RL_TIME
#undef RL_CLOCK
#undef RL_LABEL
#undef RL_HOST
#undef RL_BYTE

}  // namespace

std::string_view format_pattern(std::string_view format) {
  for (const auto& [name, pattern] : kFormats)
    if (name == format) return pattern;
  return {};
}

}  // namespace redlite::constrain
