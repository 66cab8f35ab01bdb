#!/bin/sh
# The tests `clients` and `load`: installs what package-lock.json pins (the clients that people use) and runs a script
# with it. Usage: run.sh SCRIPT REDLITE MODEL [OPTION...]. Exits with 77 (skipped) without Node.js.
set -eu
cd "$(dirname "$0")"
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "skipped: node and npm are not installed (scripts/setup installs them)"
  exit 77
fi
if ! node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)'; then
  echo "skipped: node is $(node --version), the clients need version 20"
  exit 77
fi
if ! cmp -s package-lock.json node_modules/installed-lock.json; then
  npm ci --ignore-scripts || { echo "the npm packages cannot be installed"; exit 1; }
  cp package-lock.json node_modules/installed-lock.json
fi
script=$1
shift
exec node "$script" "$@"
