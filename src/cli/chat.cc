#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/quote.h"
#include "bench/traffic.h"
#include "cli/chat_input.h"
#include "cli/chat_printer.h"
#include "cli/chat_settings.h"
#include "cli/commands.h"
#include "cli/generation_options.h"
#include "cli/line_editor.h"
#include "cli/model_choice.h"
#include "cli/options.h"
#include "cli/statistics.h"
#include "dialogue/dialogue.h"
#include "dialogue/saved.h"
#include "engine/open_runner.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace redlite::cli {
namespace {

struct ChatCommand {
  std::string model, system, load;
  int context = 16384;
  ChatSettings settings;
  engine::RunnerOptions runner;
};

std::atomic<bool> stop_answer = false;

/// As long as it lives Ctrl-C stops the answer instead of the program.
class StopOnInterrupt {
 public:
  StopOnInterrupt() {
    struct sigaction action {};
    action.sa_handler = [](int) { stop_answer = true; };
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGINT, &action, &before_);
  }
  ~StopOnInterrupt() { ::sigaction(SIGINT, &before_, nullptr); }
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;

 private:
  struct sigaction before_ {};
};

/// Marks that a quarter of a GiB holds: each is a copy of the recurrent state.
size_t most_marks(const model::Model& model) {
  const uint64_t state = bench::Traffic(model, 2).recurrent_state() / 2;
  return std::clamp<uint64_t>((uint64_t{256} << 20) / std::max<uint64_t>(state, 1), 3, 64);
}

std::string name_of(const model::Model& model) {
  const gguf::Value* value = model.file().find_value("general.name");
  const auto* name = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  return name != nullptr ? *name : model.config().architecture;
}

class Chat {
 public:
  explicit Chat(const ChatCommand& c)
      : model_(c.model.empty() ? choose_model() : c.model),
        tokenizer_(model_.file()),
        settings_(c.settings),
        terminal_(::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1),
        open_(open_runner(model_, c.runner, std::min(c.context, model_.config().context_length))),
        dialogue_(model_, tokenizer_, *open_.runner, most_marks(model_)) {
    if (!c.load.empty()) dialogue_.set_messages(dialogue::load_messages(c.load));
    if (!c.system.empty()) dialogue_.set_system(c.system);
  }

  void run() {
    std::optional<StopOnInterrupt> stop;
    if (terminal_) {
      stop.emplace();
      editor_ = std::make_unique<LineEditor>(user_file("chat_history"));
      fmt::print(
          "{}\nContext of {} tokens; expert cache: {}\n/help lists the commands; Alt-Enter begins a new "
          "line\n\n",
          fit_for_terminal(name_of(model_)), open_.runner->capacity(), open_.cache_description);
    }
    MessageReader reader([this](bool first) { return next_line(first); });
    while (const std::optional<std::string> message = reader.read()) {
      if (message->find_first_not_of(" \t\r\n") == std::string::npos) continue;
      if (editor_) editor_->remember(*message);
      if (terminal_) {
        try {
          if (!handle(*message)) break;
        } catch (const Error& e) {
          fmt::print("{}\n\n", fit_for_terminal(e.what()));
        }
      } else if (!handle(*message)) {
        break;
      }
    }
  }

 private:
  struct Command {
    std::string_view name, arguments, what;
    void (Chat::*run)(const std::string& argument);
  };
  static const std::vector<Command>& commands();

  std::optional<std::string> next_line(bool first) {
    std::string line;
    if (editor_) {
      for (;;) {
        const LineEditor::Outcome outcome = editor_->read(first ? "> " : "... ", line);
        if (outcome == LineEditor::Outcome::Line) return line;
        if (outcome == LineEditor::Outcome::GivenUp) {
          if (!first) return "";
          continue;
        }
        std::fputs("\n", stdout);
        return std::nullopt;
      }
    }
    if (!std::getline(std::cin, line)) return std::nullopt;
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }

  /// What is said besides answers: not into a pipe that wants answers.
  template <typename... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) const {
    fmt::print(terminal_ ? stdout : stderr, format, std::forward<Args>(args)...);
  }

  /// Answers a message or obeys a command; false at the end.
  bool handle(const std::string& message) {
    if (!message.starts_with('/')) {
      const size_t first = message.starts_with(" /") ? 1 : 0;  // a message that begins with a slash
      converse([&](const auto& options, const auto& hooks) {
        return dialogue_.say(message.substr(first), options, hooks);
      });
      return true;
    }
    const size_t blank = std::min(message.find_first_of(" \t\n"), message.size());
    const std::string name = message.substr(0, blank);
    const size_t begin = message.find_first_not_of(" \t\n", blank);
    const std::string argument = begin == std::string::npos ? "" : message.substr(begin);
    if (name == "/exit" || name == "/quit") return false;
    for (const Command& command : commands()) {
      if (command.name != name) continue;
      (this->*command.run)(argument);
      return true;
    }
    fail("there is no {}; /help lists the commands, and a blank in front makes it a message", quote(name));
  }

  template <typename Say>
  void converse(const Say& say) {
    dialogue::AnswerOptions options;
    options.sampler = settings_.sampler;
    if (!settings_.own_seed) options.sampler.seed = static_cast<uint32_t>(random_());
    if (settings_.max_tokens > 0) options.max_tokens = settings_.max_tokens;
    options.extra = settings_.variables();
    options.cancel = &stop_answer;
    stop_answer = false;

    ChatPrinter printer(terminal_, settings_.reasoning == "auto" ? terminal_ : settings_.reasoning == "show");
    std::optional<Progress> bar;
    dialogue::AnswerHooks hooks;
    hooks.reading = [&](size_t tokens) { bar.emplace("reading", tokens, ProgressUnit::Tokens); };
    hooks.read = [&](double tokens) {
      if (bar) bar->reach(tokens);
    };
    hooks.text = [&](dialogue::Part part, std::string_view text) {
      bar.reset();
      printer.put(part, text);
    };
    try {
      last_ = say(options, hooks);
    } catch (const dialogue::ContextFull& e) {
      fail("{}; {}", e.what(), when_full());
    }
    bar.reset();
    printer.finish();
    using engine::StopReason;
    const engine::GenerateResult& result = last_->result;
    if (last_->context_full) {
      note("(the context of {} tokens is full; {})\n", dialogue_.capacity(), when_full());
    } else if (result.reason == StopReason::MaxTokens) {
      note("(cut at max_tokens {})\n", settings_.max_tokens);
    } else if (result.reason == StopReason::Cancelled) {
      note("{}\n", result.tokens.empty() ? "(stopped; the message was taken back)" : "(stopped)");
    }
    if (terminal_) fmt::print("\n");
    std::fflush(stdout);
  }

  std::string when_full() const {
    const int most = model_.config().context_length;
    return fmt::format("/undo takes back the last turn, /reset begins anew{}",
                       dialogue_.capacity() < most
                           ? fmt::format(", and `redlite chat --context N` (up to {}) holds more", most)
                           : "");
  }

  void help(const std::string&) {
    for (const Command& command : commands())
      note("  {:<24} {}\n", fmt::format("{} {}", command.name, command.arguments), command.what);
    note("  {:<24} end the chat (Ctrl-D, too)\n", "/exit");
    note(
        "A message of several lines: a backslash at the end of a line, Alt-Enter, or \"\"\" before and after "
        "it.\n"
        "Ctrl-C stops an answer; what was said so far stays.\n");
  }
  void reset(const std::string&) {
    dialogue_.clear();
    note("The conversation begins anew.\n");
  }
  void system(const std::string& text) {
    dialogue_.set_system(text);
    note("{}\n", text.empty() ? "There is no system message now." : "The system message is set.");
  }
  void regenerate(const std::string&) {
    converse([&](const auto& options, const auto& hooks) { return dialogue_.answer_again(options, hooks); });
  }
  void undo(const std::string&) {
    if (!dialogue_.undo()) fail("there is nothing to take back");
    note("The last message and its answer are taken back.\n");
  }
  void save(const std::string& path) {
    if (path.empty()) fail("/save FILE: name a file");
    dialogue::save_messages(path, name_of(model_), dialogue_.messages());
    note("Saved {} messages.\n", dialogue_.messages().size());
  }
  void load(const std::string& path) {
    if (path.empty()) fail("/load FILE: name a file");
    dialogue_.set_messages(dialogue::load_messages(path));
    note("Loaded {} messages; they are read with the next one.\n", dialogue_.messages().size());
  }
  void stats(const std::string&) {
    if (!last_) fail("nothing was answered yet");
    note("{}  {:<15}{} of {} tokens; {} of them had not to be read again for the last answer\n",
         statistics_table(open_, last_->result), "context", dialogue_.position(), dialogue_.capacity(),
         last_->kept_tokens);
  }
  void set(const std::string& argument) {
    const size_t blank = argument.find_first_of(" \t=");
    if (argument.empty()) {
      note("{}", settings_.table());
      return;
    }
    const size_t value = blank == std::string::npos ? blank : argument.find_first_not_of(" \t=", blank);
    if (value == std::string::npos) fail("/set NAME VALUE: give a value; /set alone shows all");
    settings_.set(argument.substr(0, blank), argument.substr(value));
  }

  const model::Model model_;
  const tokenizer::Tokenizer tokenizer_;
  ChatSettings settings_;
  const bool terminal_;
  const engine::OpenRunner open_;
  dialogue::Dialogue dialogue_;
  std::unique_ptr<LineEditor> editor_;  ///< at a terminal only
  std::optional<dialogue::Answer> last_;
  std::mt19937 random_{std::random_device{}()};
};

const std::vector<Chat::Command>& Chat::commands() {
  static const std::vector<Command> all = {
      {"/help", "", "show this", &Chat::help},
      {"/reset", "", "forget the conversation, but for the system message", &Chat::reset},
      {"/system", "[TEXT]", "what the model is told first; without a text: nothing", &Chat::system},
      {"/regenerate", "", "answer the last message anew", &Chat::regenerate},
      {"/undo", "", "take back the last message and its answer", &Chat::undo},
      {"/save", "FILE", "write the conversation as JSON", &Chat::save},
      {"/load", "FILE", "go on with such a conversation", &Chat::load},
      {"/stats", "", "what the last answer took", &Chat::stats},
      {"/set", "[NAME VALUE]", "change a setting, or show them all", &Chat::set},
  };
  return all;
}

}  // namespace

void add_chat(CLI::App& app) {
  auto c = std::make_shared<ChatCommand>();
  CLI::App* command =
      app.add_subcommand("chat", "Talk with a model; lines from a pipe are answered one by one");
  command
      ->add_option(
          "model", c->model,
          "GGUF file; default: the best one in ~/.redlite/models for this machine, or the bundled one")
      ->type_name("MODEL");
  command->add_option("--system", c->system, "what the model is told first")->type_name("TEXT");
  command->add_option("--load", c->load, "go on with a conversation that /save wrote")->type_name("FILE");
  command->add_option("-n,--n-predict", c->settings.max_tokens, "most tokens of an answer; 0: no limit")
      ->type_name("N")
      ->check(in_range(0, 1 << 24))
      ->capture_default_str();
  command
      ->add_option("--reasoning", c->settings.reasoning,
                   "what the model thinks before it answers; auto: shown on a terminal (dim), else not")
      ->type_name("auto|show|hide")
      ->check(one_of({"auto", "show", "hide"}))
      ->capture_default_str();
  add_sampler_options(*command, c->settings.sampler);
  add_runner_options(*command, c->runner);
  // Here the seed is another one for each answer unless given, and the context is what one has for all turns.
  command->remove_option(command->get_option("--seed"));
  command->remove_option(command->get_option("--context"));
  command->add_option("--seed", c->settings.sampler.seed, "of the sampler; default: another for each answer")
      ->type_name("N")
      ->group("Sampling");
  command->add_option("--context", c->context, "most tokens of a conversation")
      ->type_name("N")
      ->check(in_range(16, 1 << 24))
      ->capture_default_str()
      ->group("Engine");
  command->callback([=] {
    c->settings.own_seed = command->count("--seed") > 0;
    Chat(*c).run();
  });
}

}  // namespace redlite::cli
