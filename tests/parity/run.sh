#!/bin/sh
# The tests `parity_*`: installs the judge (npm packages, as package-lock.json pins them) and runs main.mjs.
# Usage: run.sh REDLITE DEMO_MODEL FOLDER [SECTION ...]. Exits with 77 (skipped) where there is no judge for this machine.
set -eu
cd "$(dirname "$0")"
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "skipped: node and npm are not installed (scripts/setup installs them)"
  exit 77
fi
if ! node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)'; then
  echo "skipped: node is $(node --version), the judge needs version 20"
  exit 77
fi
if [ "$(uname -sm)" != "Linux x86_64" ]; then
  echo "skipped: package.json names the judge's binary for Linux x86_64 only, this is $(uname -sm)"
  exit 77
fi
exec 9<package-lock.json
flock 9  # they may run at the same time
if ! cmp -s package-lock.json node_modules/installed-lock.json; then
  npm ci || { echo "the judge's npm packages cannot be installed"; exit 1; }
  cp package-lock.json node_modules/installed-lock.json
fi
exec 9>&-
exec node main.mjs "$@"
