#include "dialogue/saved.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/file.h"
#include "support/temporary_folder.h"

namespace redlite::dialogue {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

ordered_json load(const TemporaryFolder& folder, const std::string& text) {
  const std::string path = folder / "conversation.json";
  write_file_atomically(path, std::as_bytes(std::span(text)));
  return load_messages(path);
}

TEST(SavedConversation, ComesBackAsItWas) {
  const TemporaryFolder folder;
  const ordered_json messages = {
      {{"role", "system"}, {"content", "Be \"brief\"."}},
      {{"role", "user"}, {"content", "h\u00e9\n"}},
      {{"role", "assistant"}, {"content", "yo"}, {"reasoning_content", "hm"}},
  };
  save_messages(folder / "a.json", "a model", messages);
  EXPECT_EQ(load_messages(folder / "a.json"), messages);
  EXPECT_EQ(load(folder, messages.dump()), messages) << "a plain array will do";
}

TEST(SavedConversation, WhatComesFromElsewhereIsChecked) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text, const std::string& why) {
    EXPECT_THAT([&] { load(folder, text); }, ThrowsMessage<Error>(HasSubstr(why))) << text.substr(0, 60);
  };
  refused("", "not JSON");
  refused("{\"messages\": [", "not JSON");
  refused("\"\xff\"", "not JSON");
  refused(std::string(1'000'000, '['), "not JSON");
  refused("{}", "no array of messages");
  refused("7", "no array of messages");
  refused("[1]", "messages[0]: an object");
  refused(R"([{"content": "x"}])", "the role '' cannot stand here");
  refused(R"([{"role": "user", "content": ["x"]}])", "messages[0].content: a string is wanted");
  refused(R"([{"role": "user", "content": "x"}, {"role": "system", "content": "y"}])",
          "messages[1]: the role 'system'");
  refused(R"([{"role": "tool", "content": "x"}])", "has no tools");
  // What the chat does not know is not handed on to the template.
  EXPECT_EQ(load(folder, R"([{"role": "user", "content": "x", "evil": {"a": 1}, "reasoning_content": "y"}])"),
            ordered_json({{{"role", "user"}, {"content", "x"}}}));
  EXPECT_THROW(load_messages(folder / "nothing"), Error);
  EXPECT_THROW(load_messages(folder.path()), Error);
}

}  // namespace
}  // namespace redlite::dialogue
