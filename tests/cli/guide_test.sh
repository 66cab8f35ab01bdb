#!/usr/bin/env bash
# Runs every block of commands in docs/guide.md, in order, in one folder. usage: guide_test.sh REDLITE_BINARY
set -u
binary=$(realpath "$1")
export REDLITE
REDLITE=$(realpath "$(dirname "$0")/../..")
export HOME
HOME=$(mktemp -d)
trap 'rm -rf "$HOME"' EXIT
mkdir "$HOME/bin" && ln -s "$binary" "$HOME/bin/redlite"
export PATH=$HOME/bin:$PATH
cd "$HOME" || exit 1
awk '/^```/ { inside = !inside && $0 == "```sh"; if (inside) ++n; next } inside { print > sprintf("block%02d", n) }' \
  "$REDLITE/docs/guide.md"
blocks=0
for block in block??; do
  blocks=$((blocks + 1))
  # With job control, as for one who types, so that %1 means something.
  if ! timeout 120 bash -m -e -o pipefail "$block" >out 2>err; then
    echo "failed:"
    cat "$block"
    echo "--- out"
    tail -20 out
    echo "--- err"
    tail -20 err
    exit 1
  fi
done
# Every command but the developers' own stands in the guide.
for command in $(redlite --help | awk '/^Subcommands:/ { on = 1; next } on { print $1 }'); do
  case $command in help | kernel-selftest | logits | parity | '') continue ;; esac
  grep -q "redlite $command" "$REDLITE/docs/guide.md" || { echo "not in the guide: redlite $command"; exit 1; }
done
[ "$blocks" -ge 8 ] || { echo "only $blocks blocks found"; exit 1; }
echo "$blocks blocks"
