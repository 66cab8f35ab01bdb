# The two commands a newcomer needs are `make demo` and `make test`; the rest is for working on the engine.
MODEL := models/redlite-tales-32M.gguf
CMAKE_BUILD := cmake --build
PREFIX ?= /usr/local
.PHONY: demo test build install deb setup format check-format lint fuzz clean

## Builds Red Lite and lets the bundled model tell a tale with a quarter of its experts in memory.
demo: build
	build/release/redlite generate $(MODEL) --prompt "Once upon a time" -n 250 \
	  --temp 0.7 --repeat-penalty 1.1 --seed 3 --cache-mib 4 --stats

build:
	scripts/setup build
	cmake --preset release -DREDLITE_TESTS=OFF >build-configure.log 2>&1 || { cat build-configure.log; exit 1; }
	@rm -f build-configure.log
	$(CMAKE_BUILD) --preset release --target redlite

## Builds with warnings as errors and runs every test, llama.cpp's judgement included.
test:
	scripts/setup test
	cmake --preset ci
	$(CMAKE_BUILD) --preset ci
	ctest --test-dir build/ci -j $$(nproc) --output-on-failure

## Installs the program, the library with its headers, manual page, completions and the service: PREFIX=/usr/local.
install deb: build/install/built
build/install/built: FORCE
	scripts/setup build
	cmake --preset release -B build/install -DREDLITE_TESTS=OFF -DREDLITE_LIBRARY=ON -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	$(CMAKE_BUILD) build/install
install:
	cmake --install build/install

## A Debian package, in build/install.
deb:
	cd build/install && cpack
FORCE:

SOURCES = $(shell git ls-files 'src/*.h' 'src/*.cc' 'tests/*.h' 'tests/*.cc' 'bench/*.cc')

format:
	clang-format -i $(SOURCES)

check-format:
	clang-format --dry-run --Werror $(SOURCES)

lint:
	scripts/lint

## Fuzzes every target for 60 seconds.
fuzz:
	scripts/fuzz 60

clean:
	rm -rf build
