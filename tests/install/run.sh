#!/usr/bin/env bash
# The test `install`: installs into an empty folder and uses what is there. usage: run.sh BUILD SOURCE
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

cmake --install "$build" --prefix "$work/usr" >"$work/log" || { cat "$work/log"; fail "cmake --install"; }
model=$work/usr/share/redlite/redlite-tales-32M.gguf

echo "== the program"
"$work/usr/bin/redlite" generate "$model" --prompt "Once upon a time" -n 5 >"$work/tale"
[ "$(wc -w <"$work/tale")" -ge 3 ] || fail "no tale: $(cat "$work/tale")"

echo "== the example, against the installed library"
cmake -S "$source/examples" -B "$work/example" -G Ninja -DCMAKE_PREFIX_PATH="$work/usr" >/dev/null
cmake --build "$work/example" >/dev/null
"$work/example/generate" "$model" "Tell me of a fox." >"$work/answer"
grep -q "experts found in memory" "$work/answer" || fail "the example said: $(cat "$work/answer")"

echo "== nothing but the public names leaves the library"
library=$(find "$work/usr" -name 'libredlite.so' | head -1)
strange=$(nm -DC --defined-only "$library" | awk '$2 ~ /[TDB]/' | cut -d' ' -f3- |
  grep -vE '^(redlite::(Model|Session|Error|version)|typeinfo|vtable|_init|_fini)' | head -5 || true)
[ -z "$strange" ] || fail "also exported: $strange"

echo "== the manual page"
page=$work/usr/share/man/man1/redlite.1
grep -q '^\.SH REDLITE generate' "$page" || fail "no section for generate in $page"
if command -v groff >/dev/null; then
  warnings=$(groff -man -Tutf8 -ww "$page" 2>&1 >/dev/null || true)
  [ -z "$warnings" ] || fail "groff: $warnings"
fi

echo "== completions"
complete_words() {
  # shellcheck disable=SC1090
  bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _redlite; echo "${COMPREPLY[@]}"' \
    - "$work/usr/share/bash-completion/completions/redlite" "$@"
}
[ "$(complete_words redlite gen)" = generate ] || fail "gen -> $(complete_words redlite gen)"
complete_words redlite generate --cache | grep -q -- --cache-mib || fail "--cache is not completed"
[ "$(complete_words redlite generate --kv f)" = "f32 f16" ] || fail "--kv f -> $(complete_words redlite generate --kv f)"
for shell in zsh fish; do
  command -v $shell >/dev/null || { echo "   $shell is not installed"; continue; }
  file=$(find "$work/usr" -name '_redlite' -o -name 'redlite.fish' | grep -i "$shell")
  $shell -n "$file" || fail "$file"
done
echo "all well"
