# Everything a contributor does, by name. `make help` lists it. Steps are quiet but for a line that says how far they
# are; their output is in .cache/logs/.

BUILD_TYPE ?= Release
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 10
# How long `make hostile` goes on, and what else it passes on, say: make hostile SECONDS=3600 HOSTILE="--kinds kill,abort"
SECONDS ?= 60
HOSTILE ?=
# What `make bench` passes on, say: make bench BENCH="--ranks 4 -e 64M"
BENCH ?=
# Whether GPU kernels are compiled: ON, OFF, or AUTO, where there is a CUDA compiler (tools/setup installs one). They take
# ten minutes on two cores, so without a word `make bench` compiles them only where two GPUs are, and measures there
# between GPUs; a build folder that has them keeps them.
CUDA ?=
GPUS := $(words $(wildcard /dev/nvidia[0-9] /dev/nvidia[0-9][0-9]))
TWO_GPUS := $(filter-out 0 1,$(GPUS))
KEPT_CUDA := $(shell sed -n 's/^STRETTO_CUDA:[A-Z]*=//p' build/CMakeCache.txt 2>/dev/null)
BENCH_CUDA := $(or $(CUDA),$(if $(TWO_GPUS),ON,$(or $(KEPT_CUDA),OFF)))
BENCH_DEVICE := $(if $(TWO_GPUS),$(if $(filter-out OFF,$(BENCH_CUDA)),cuda,cpu),cpu)

# The package compiles the library again, and sanitizer builds are thrown away often: what was compiled once is kept, and
# known again in another folder (tools/wheels builds from a source package).
export CMAKE_CXX_COMPILER_LAUNCHER := $(shell command -v ccache)
export CCACHE_DIR := $(CURDIR)/.cache/ccache
export CCACHE_MAXSIZE := 2G
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := true

PYTHON := .venv/bin/python
# Containers often set it. Every command that a test runs would compile Typer and Rich again: 1.1 CPU seconds in place of 0.3.
unexport PYTHONDONTWRITEBYTECODE
STEP := tools/step
# Whether the files of a folder are compiled together (cmake/unity.cmake): a first build takes less time, a build after a
# change takes longer. ON where everything is compiled once: CI and `make bench`. A build folder stays as it is.
KEPT_UNITY := $(shell sed -n 's/^STRETTO_UNITY:BOOL=//p' build/CMakeCache.txt 2>/dev/null)
UNITY ?= $(or $(KEPT_UNITY),$(if $(CI),ON,OFF))
CMAKE_OPTIONS := -S . -G Ninja -DSTRETTO_WERROR=ON -DSTRETTO_UNITY=$(UNITY)
# Compiles what is missing of the package, in the build folder of everything else; -v shows how far that is.
INSTALL_PACKAGE = $(PYTHON) -m pip install -v --no-build-isolation --no-deps --config-settings build-dir=build \
  --config-settings cmake.build-type=$(BUILD_TYPE) --config-settings "build.targets=stretto_package;bench_drivers" \
  --config-settings cmake.define.STRETTO_UNITY=$(UNITY) --editable .

# tests/labels.cmake says what is of which label.
CTEST := ctest --output-on-failure -j $(JOBS)
# ThreadSanitizer of GCC 12 cannot place its shadow where a kernel randomises addresses widely.
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)

.PHONY: help setup build native viewer python test ctest timed pytest viewertest wheel tsan-build tsan-build-tried tsan asan-build asan fuzz setup-compilers compilers parse test-windows test-windows-part hostile bench docs lint format clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what everything else needs (Debian packages if missing; the rest into .venv/ and .cache/)
	@tools/setup

build: native viewer python ## libraries, tests, benchmarks and plugins in build/; the Python package in .venv/

native: setup ## the C++ half of that
	@$(STEP) configure cmake $(CMAKE_OPTIONS) -B build -DCMAKE_BUILD_TYPE=$(BUILD_TYPE) \
	  -DSTRETTO_BUILD_TESTS=ON -DSTRETTO_BUILD_BENCHMARKS=ON -DSTRETTO_CUDA=$(or $(CUDA),AUTO)
	@$(STEP) build cmake --build build -j $(JOBS)

viewer: setup ## the timeline, as one page: viewer/dist/viewer.html
	@$(STEP) viewer sh -c 'cd viewer && { cmp -s package-lock.json node_modules/.stamp || \
	  { npm ci && cp package-lock.json node_modules/.stamp; }; } && npm run build'

python: native viewer ## the Python half: the package, with the `stretto` command, into .venv/
	@$(STEP) python $(INSTALL_PACKAGE)

# Ranks under test mostly wait for one another, so compilers work beside the tests, with what those leave of the cores.
# Linux weighs sessions against each other where it groups processes by session, and ranks have sessions of their own; so
# have the compilers, whose group is made nice as a whole. What they need is installed before they begin. What fails does
# not keep the rest from being run.
BESIDE := setsid sh -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec nice -n 19 "$$@"' beside
TRIED := .cache/logs/tsan-build-tried
test: ## all tests: C++, Python, docstrings, viewer, wheel, sanitizers, fuzz, compilers
	@failed=0; rm -f $(TRIED); $(MAKE) -k native setup-compilers || failed=1; \
	$(BESIDE) $(MAKE) -k -j1 tsan-build tsan-build-tried asan-build parse & beside=$$!; \
	trap 'kill -- -$$beside; exit 130' HUP INT QUIT TERM; \
	$(MAKE) -k ctest pytest docs viewertest wheel || failed=1; \
	while [ ! -e $(TRIED) ] && kill -0 $$beside 2>/dev/null; do sleep 1; done; \
	$(MAKE) tsan || failed=1; \
	wait $$beside || failed=1; \
	$(MAKE) -k asan fuzz || failed=1; \
	exit $$failed

tsan-build-tried:
	@mkdir -p $(dir $(TRIED)) && touch $(TRIED)

ctest: native ## the C++ tests that need no GPU; tools/gpu runs the others
	@$(STEP) ctest $(CTEST) --test-dir build -LE 'gpu|timed'

timed: native ## the tests that hold a time against a limit: for a machine that does nothing else
	@$(STEP) timed ctest --test-dir build --output-on-failure -L timed

pytest: build ## the Python tests: interface, tools, package
	@$(STEP) pytest $(PYTHON) tools/python_tests

viewertest: build ## the viewer's types, model and pages, those in headless Chromium
	@$(STEP) viewer-test sh -c 'cd viewer && npm run types && npm test'

# Without GPU kernels, which take ten minutes; the rest of a wheel, how it is made and how it is tried out are the same.
wheel: viewer ## a wheel (CUDA=ON: with GPU kernels) and its source package into dist/, tried out as users do
	@$(STEP) wheel $(PYTHON) tools/wheels --cuda $(or $(CUDA),OFF)
	@$(STEP) wheel-checks $(PYTHON) -m pytest -q tests/wheels/check_wheel.py

tsan-build: setup
	@$(STEP) configure-tsan cmake $(CMAKE_OPTIONS) -B build-tsan -DSTRETTO_SANITIZER=thread -DSTRETTO_BUILD_TESTS=ON
	@$(STEP) build-tsan cmake --build build-tsan -j $(JOBS) --target sanitized_tests

tsan: tsan-build ## the C++ tests that run ranks as threads, under ThreadSanitizer
	@TSAN_OPTIONS=halt_on_error=1 $(STEP) tsan $(FIXED_ADDRESSES) \
	  $(CTEST) --test-dir build-tsan -L sanitized -LE one_thread

asan-build: setup
	@$(STEP) configure-asan cmake $(CMAKE_OPTIONS) -B build-asan -DSTRETTO_SANITIZER=address -DSTRETTO_BUILD_TESTS=ON \
	  -DSTRETTO_BUILD_FUZZERS=ON -DCMAKE_CXX_COMPILER=clang++-14
	@$(STEP) build-asan cmake --build build-asan -j $(JOBS) --target sanitized_tests fuzzers

# Tests load several plugins with a table of one name, as profiler plugins have it.
asan: asan-build ## the same and those of one thread, under AddressSanitizer and UndefinedBehaviorSanitizer
	@ASAN_OPTIONS=detect_leaks=1:detect_odr_violation=0 $(STEP) asan $(FIXED_ADDRESSES) $(CTEST) --test-dir build-asan -L sanitized

fuzz: asan-build ## the fuzz programs, of that build, FUZZ_SECONDS each
	@$(STEP) fuzz tools/fuzz build-asan $(FUZZ_SECONDS) $(JOBS)

setup-compilers: setup
	@$(STEP) setup-compilers tools/setup --compilers

compilers: setup-compilers ## the sources, parsed by the oldest and the newest GCC and clang that Debian has here: no warning
	@$(MAKE) --no-print-directory parse

parse: setup
	@$(STEP) compilers tools/compilers --jobs $(JOBS)

# Apart from `make test`: it needs mingw-w64 and Wine, which it installs where it may.
test-windows: ## Windows (docs/windows.md): stretto.dll by mingw-w64, and its tests under Wine
	@tools/setup --windows
	@$(STEP) configure-windows cmake --preset windows-mingw
	@$(STEP) build-windows cmake --build build-windows -j $(JOBS)
	@$(STEP) test-windows tools/test_windows build-windows

# CI has no time for all of it; .ci/run passes this over, and says so, where mingw-w64 or Wine cannot be installed.
test-windows-part: ## of that the platform layer and what lies beside it, as CI does
	@tools/setup --windows
	@$(STEP) configure-windows cmake --preset windows-mingw-part
	@$(STEP) build-windows cmake --build build-windows-part -j $(JOBS)
	@$(STEP) test-windows tools/test_windows build-windows-part

hostile: native ## random operations and random faults for SECONDS; ctest does a minute of it (tests/hostile/README.md)
	@build/tests/hostile/hostile --seconds $(SECONDS) --jobs $(JOBS) --json build/hostile.json $(HOSTILE)

# For most this is the first build, and the only one.
bench: UNITY := $(or $(KEPT_UNITY),ON)
bench: ## an all-reduce sweep against the peers at hand: a table and a plot in bench-out/
	@tools/setup $(if $(filter OFF,$(BENCH_CUDA)),--bench,--bench-gpu)
	@$(STEP) package $(INSTALL_PACKAGE) \
	  --config-settings cmake.define.STRETTO_BUILD_BENCHMARKS=ON --config-settings cmake.define.STRETTO_CUDA=$(BENCH_CUDA)
	@mkdir -p bench-out
	@.venv/bin/stretto bench all_reduce --device $(BENCH_DEVICE) --ranks 2 \
	  --json bench-out/all_reduce.json --plot bench-out/all_reduce.png $(BENCH)

# stretto.torch is left out: it defines operators of PyTorch when it is imported, and PyTorch, which takes gigabytes, is not
# among what `make setup` installs. Its docstrings are in python/stretto/torch/__init__.py.
docs: python ## the Python interface, from its docstrings, as pages in build/docs/
	@$(STEP) docs $(PYTHON) -W error -m pdoc --docformat markdown --no-search -o build/docs \
	  stretto stretto.nccl stretto.launch stretto.rendezvous stretto.pytorch

lint: setup ## formatting, types, layers, sizes, words
	@$(PYTHON) tools/lint

format: setup ## rewrite C++ and Python into the common format
	@git ls-files -z '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh' | xargs -0 -r clang-format -i
	@$(PYTHON) -m ruff check --quiet --fix-only . && $(PYTHON) -m ruff format --quiet .

clean: ## remove what was built; .venv/ and what .cache/ holds of NVIDIA stay
	@rm -rf build build-tsan build-asan build-gpu build-windows build-windows-part build-compilers build-wheels dist bench-out viewer/dist viewer/.out .cache/logs
