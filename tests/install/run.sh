#!/usr/bin/env bash
# The test `install`: installs into an empty folder and uses what is there. usage: run.sh BUILD SOURCE
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

cmake --install "$build" --prefix "$work/usr" >"$work/log" || { cat "$work/log"; fail "cmake --install"; }
model=$work/usr/share/redlite/models/redlite-tales-32M.gguf

echo "== the program"
"$work/usr/bin/redlite" generate "$model" --prompt "Once upon a time" -n 5 >"$work/tale"
[ "$(wc -w <"$work/tale")" -ge 3 ] || fail "no tale: $(cat "$work/tale")"
echo "A tale?" | HOME=$work "$work/usr/bin/redlite" chat -n 5 >"$work/tale" 2>"$work/log" ||
  { cat "$work/log"; fail "chat without a model finds no bundled one"; }

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
  bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _redlite; printf "%s\n" "${COMPREPLY[@]}"' \
    - "$work/usr/share/bash-completion/completions/redlite" "$@"
}
[ "$(complete_words redlite gen)" = generate ] || fail "gen -> $(complete_words redlite gen)"
complete_words redlite generate --cache | grep -q -- --cache-mib || fail "--cache is not completed"
[ "$(complete_words redlite generate --kv f)" = $'f32\nf16' ] || fail "--kv f -> $(complete_words redlite generate --kv f)"
[ "$(complete_words redlite models ver | head -n 1)" = verify ] || fail "models ver -> $(complete_words redlite models ver)"
! complete_words redlite models verify ver | grep -q '^verify$' || fail "models verify offers verify once more"
touch "$work/a model.gguf"
[ "$(complete_words redlite info "$work/a " | wc -l)" = 1 ] || fail "a name with a space is cut"
for shell in zsh fish; do
  command -v $shell >/dev/null || { echo "   $shell is not installed"; continue; }
  file=$(find "$work/usr" -name '_redlite' -o -name 'redlite.fish' | grep -i "$shell")
  $shell -n "$file" || fail "$file"
done
unit_starts() {  # a unit, the program that it must start
  grep -q "^ExecStart=$2 serve " "$1" || fail "$1 starts $(grep ExecStart= "$1")"
}
echo "== the service"
unit=$work/usr/lib/systemd/system/redlite.service
unit_starts "$unit" "$work/usr/bin/redlite"
if command -v systemd-analyze >/dev/null; then
  systemd-analyze verify "$unit" >"$work/log" 2>&1 || { cat "$work/log"; fail "systemd-analyze verify"; }
fi

if command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null; then
  echo "== the Debian package"
  cpack --config "$build/CPackConfig.cmake" -B "$work/package" >"$work/log" 2>&1 || { cat "$work/log"; fail "cpack"; }
  dpkg-deb -x "$work"/package/redlite_*.deb "$work/root"
  [ "$(ls "$work/root")" = usr ] || fail "the package has more than usr: $(ls "$work/root")"
  diff <(cd "$work/usr" && find . | sort) <(cd "$work/root/usr" && find . | sort) || fail "the package has other files"
  unit_starts "$work/root/usr/lib/systemd/system/redlite.service" /usr/bin/redlite
  dpkg-deb -f "$work"/package/redlite_*.deb Depends | grep -q libc6 || fail "the package depends on nothing"
  "$work/root/usr/bin/redlite" info "$work/root/usr/share/redlite/models/redlite-tales-32M.gguf" >/dev/null ||
    fail "the packaged program"
fi
echo "all well"
