#include "cli/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

namespace redlite::cli {
namespace {

constexpr int kMostLines = 2000;

/// Sequences with which terminals tell of pasted text.
constexpr const char *kPasteOn = "\x1b[?2004h", *kPasteOff = "\x1b[?2004l";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

}  // namespace

struct LineEditor::Impl {
  std::string history_file;
  std::string prompt;
  bool given_up = false;
  EditLine* editor = nullptr;
  History* history = nullptr;
  HistEvent event{};

  static Impl* of(EditLine* editor) {
    Impl* impl = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &impl);
    return impl;
  }
  static char* show_prompt(EditLine* editor) { return of(editor)->prompt.data(); }
  static unsigned char give_up(EditLine* editor, int /*key*/) {
    of(editor)->given_up = true;
    return CC_EOF;
  }
  static unsigned char do_nothing(EditLine* /*editor*/, int /*key*/) { return CC_NORM; }
  static unsigned char new_line(EditLine* editor, int /*key*/) {
    return ::el_winsertstr(editor, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
  }
  /// What is pasted is text, line breaks included, and no key of it a command.
  static unsigned char paste(EditLine* editor, int /*key*/) {
    std::wstring text;
    for (wchar_t c = 0; !text.ends_with(kPasteEnd);) {
      if (::el_wgetc(editor, &c) != 1) return CC_EOF;
      text.push_back(c == L'\r' ? L'\n' : c);
    }
    text.resize(text.size() - kPasteEnd.size());
    std::erase_if(text, [](wchar_t c) { return (c < 32 && c != L'\n' && c != L'\t') || c == 127; });
    if (text.empty()) return CC_REFRESH;
    return ::el_winsertstr(editor, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }
};

LineEditor::LineEditor(std::string history_file) : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
  impl.history_file = std::move(history_file);
  impl.editor = ::el_init("redlite", stdin, stdout, stderr);
  impl.history = ::history_init();
  EditLine* const editor = impl.editor;
  ::el_set(editor, EL_CLIENTDATA, &impl);
  ::el_set(editor, EL_PROMPT, &Impl::show_prompt);
  ::el_set(editor, EL_EDITOR, "emacs");
  ::el_set(editor, EL_HIST, ::history, impl.history);
  ::history(impl.history, &impl.event, H_SETSIZE, kMostLines);
  ::history(impl.history, &impl.event, H_SETUNIQUE, 1);
  if (!impl.history_file.empty()) ::history(impl.history, &impl.event, H_LOAD, impl.history_file.c_str());

  // While a line is edited Ctrl-C is a key; otherwise it is the signal that stops an answer.
  ::el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
  ::el_set(editor, EL_ADDFN, "give-up", "Give up this line", &Impl::give_up);
  ::el_set(editor, EL_ADDFN, "new-line", "Begin a new line", &Impl::new_line);
  ::el_set(editor, EL_ADDFN, "do-nothing", "Take no notice of this key", &Impl::do_nothing);
  ::el_set(editor, EL_ADDFN, "paste", "Insert pasted text", &Impl::paste);
  ::el_set(editor, EL_BIND, "^C", "give-up", nullptr);
  ::el_set(editor, EL_BIND, "\\e^M", "new-line", nullptr);
  ::el_set(editor, EL_BIND, "\\e^J", "new-line", nullptr);
  ::el_set(editor, EL_BIND, "\\e[200~", "paste", nullptr);
  ::el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  ::el_set(editor, EL_BIND, "^D", "em-delete-or-list", nullptr);
  // What a Ctrl-D becomes that was typed while no line was read; libedit would insert the next key as it is.
  ::el_set(editor, EL_BIND, "^@", "do-nothing", nullptr);
  ::el_source(editor, nullptr);  // ~/.editrc
}

LineEditor::~LineEditor() {
  ::history_end(impl_->history);
  ::el_end(impl_->editor);
}

LineEditor::Outcome LineEditor::read(const std::string& prompt, std::string& line) {
  Impl& impl = *impl_;
  impl.prompt = prompt;
  impl.given_up = false;
  // Before the prompt is shown: who sees it may type, and no key is the terminal's then.
  ::el_set(impl.editor, EL_PREP_TERM, 1);
  std::fputs(kPasteOn, stdout);
  std::fflush(stdout);
  int n = 0;
  const char* text = ::el_gets(impl.editor, &n);
  std::fputs(kPasteOff, stdout);
  if (impl.given_up) std::fputs("^C\n", stdout);
  std::fflush(stdout);
  if (impl.given_up) return Outcome::GivenUp;
  if (text == nullptr || n <= 0) return Outcome::End;
  line.assign(text);
  if (line.ends_with('\n')) line.pop_back();
  return Outcome::Line;
}

void LineEditor::remember(const std::string& text) {
  Impl& impl = *impl_;
  ::history(impl.history, &impl.event, H_ENTER, text.c_str());
  if (impl.history_file.empty()) return;
  // Made with its mode before anything is in it, in a folder of the user's own.
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(impl.history_file).parent_path();
  if (std::filesystem::create_directories(folder, error)) ::chmod(folder.c_str(), 0700);
  const int fd = ::open(impl.history_file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  ::fchmod(fd, 0600);
  ::close(fd);
  ::history(impl.history, &impl.event, H_SAVE, impl.history_file.c_str());
}

}  // namespace redlite::cli
