#!/usr/bin/env bash
# The test `pip`: docs/guide.md's commands for Python on a machine without a network, and what they install. The module
# itself is the build tree's: a cmake of our own, which only copies it, stands in front of the real one.
# usage: pip.sh BUILD SOURCE
set -euo pipefail
build=$1
export REDLITE=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

mkdir "$work/bin" "$work/source"
cat >"$work/bin/cmake" <<END
#!/usr/bin/env bash
[ "\$1" = -S ] || exit 0
mkdir -p "\$4/python/redlite"
cp "$build"/python/redlite/_redlite*.so "\$4/python/redlite"
END
chmod +x "$work/bin/cmake"
# pip builds where the sources are: not in ours.
for file in CMakeLists.txt README.md pyproject.toml setup.py python; do cp -r "$REDLITE/$file" "$work/source"; done

awk '/^```/ { inside = $0 == "```shell"; next } inside' "$REDLITE/docs/guide.md" >"$work/commands"
[ -s "$work/commands" ] || fail "the guide has no commands for Python"
HOME=$work REDLITE=$work/source PATH=$work/bin:$PATH PIP_NO_INDEX=1 bash -e "$work/commands" >"$work/log" 2>&1 ||
  { cat "$work/commands" "$work/log"; fail "the guide's commands"; }

python=$work/redlite-python/bin/python
cd "$work/redlite-python"
folder=$("$python" -c 'import redlite, pathlib; print(pathlib.Path(redlite.__file__).parent)')
case $folder in "$work/redlite-python"/*) ;; *) fail "imported from $folder" ;; esac
for file in __init__.py __init__.pyi py.typed; do
  cmp "$folder/$file" "$REDLITE/python/redlite/$file" || fail "$file"
done
version=$("$python" -c 'import importlib.metadata as m, redlite; print(m.version("redlite"), redlite.__version__)')
[ "${version% *}" = "${version#* }" ] || fail "versions differ: $version"
REDLITE_DEMO_MODEL=$REDLITE/models/redlite-tales-32M.gguf "$python" -m unittest discover -s "$REDLITE/tests/python" >"$work/log" 2>&1 ||
  { cat "$work/log"; fail "the tests, with the installed module"; }
echo "all well"
