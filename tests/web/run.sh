#!/bin/sh
# The test `web`: builds the page from web/ and compares it with web/dist, then uses it in headless Chromium.
# usage: run.sh REDLITE MODEL [--pictures FOLDER]. Exits with 77 (skipped) without Node.js 20 or Chromium.
set -eu
cd "$(dirname "$0")"
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "skipped: node and npm are not installed (scripts/setup installs them)"
  exit 77
fi
if ! node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)'; then
  echo "skipped: node is $(node --version), the page's tools need version 20"
  exit 77
fi
for folder in . ../../web; do
  if ! cmp -s $folder/package-lock.json $folder/node_modules/installed-lock.json; then
    (cd $folder && npm ci --ignore-scripts) || { echo "the npm packages cannot be installed"; exit 1; }
    cp $folder/package-lock.json $folder/node_modules/installed-lock.json
  fi
done

built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
(cd ../../web && npx --no-install tsc --noEmit)
node ../../web/build.mjs "$built"
diff -r "$built" ../../web/dist || { echo "web/dist is not what web/src gives: run npm run build in web/"; exit 1; }

chromium=$(command -v chromium || command -v chromium-browser || true)
[ -n "$chromium" ] || { echo "skipped: Chromium is not installed (scripts/setup test installs it)"; exit 77; }
CHROMIUM=$chromium node main.mjs "$@"
