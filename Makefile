# Toolbelay. `make` alone lists the targets; all of them set up what they need, with nothing but Python and make.

VENV         ?= .venv
TEST_WORKERS ?= 2
PYTEST_ARGS  ?=
BENCH_ARGS   ?=
DEMO_ARGS    ?=
SOAK_ARGS    ?=

BIN    := $(VENV)/bin
PYTHON := $(BIN)/python
PIP    := $(PYTHON) -m pip --disable-pip-version-check --no-input

# An installation is done once for each state of the files that it comes from.
BASE    := $(VENV)/.made
RUNTIME := $(VENV)/.installed-runtime
DEV     := $(VENV)/.installed-dev

PROTO_FILES := $(sort $(wildcard proto/toolbelay/v1/*.proto))
SOURCE_DIRS := service tests bench migrations
MAX_LINES   := 400

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --no-header
# The extra litellm stays out: its hook runs in the LiteLLM proxy's environment, and brings 700 MB.
EXTRAS := --extra mcp --extra compression

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test e2e e2e-litellm check lint types modules proto lock bench bench-smoke bench-quality soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(DEV) ## make .venv with everything for development

demo: $(RUNTIME) ## play a session against a real, embedded service
	$(BIN)/toolbelay demo $(DEMO_ARGS)

test: $(DEV) ## run all tests, on real servers that the tests start themselves
	$(PYTHON) -m pytest -n $(TEST_WORKERS) --dist worksteal $(PYTEST_ARGS)

e2e: $(DEV) ## run only the tests that drive the built service from outside
	$(PYTHON) -m pytest -m e2e $(PYTEST_ARGS)

e2e-litellm: $(DEV) ## run the hook inside the real LiteLLM proxy (installs it: 750 MB, minutes)
	E2E_LITELLM=1 $(PYTHON) -m pytest -m e2e tests/e2e/test_litellm_proxy.py $(PYTEST_ARGS)

check: lint types modules ## lint, formatting, types, API lint, module lengths

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/buf lint proto

types: $(DEV)
	$(BIN)/mypy

modules:
	@find $(SOURCE_DIRS) -name '*.py' ! -name '*_pb2*.py' -exec awk -v most=$(MAX_LINES) \
		'FNR == most + 1 {print FILENAME ": more than " most " lines; split it"; bad = 1} END {exit bad}' {} +

proto: $(DEV) ## regenerate service/toolbelay/v1 from proto/
	$(PYTHON) -m grpc_tools.protoc -I proto --python_out=service --pyi_out=service --grpc_python_out=service \
		$(PROTO_FILES)

lock: $(DEV) ## pin again after a change of pyproject.toml or requirements-*.in (LOCK_ARGS=--upgrade for newer ones)
	$(LOCK) $(LOCK_ARGS) pyproject.toml $(EXTRAS) -o requirements.txt
	$(LOCK) $(LOCK_ARGS) requirements-build.in -c requirements.txt -o requirements-build.txt
	$(LOCK) $(LOCK_ARGS) pyproject.toml requirements-dev.in $(EXTRAS) -c requirements.txt -o requirements-dev.txt

bench: $(DEV) ## measure speed beside the limits of the same run (6 minutes)
	$(PYTHON) -m bench.bench $(BENCH_ARGS)

bench-smoke: $(DEV) ## the same in under a minute; fails only on a collapse
	$(PYTHON) -m bench.smoke

bench-quality: $(DEV) ## measure which tools the strategies find
	$(PYTHON) -m bench.quality $(BENCH_ARGS)

soak: $(DEV) ## histories, random faults and fuzzing for minutes (SOAK_ARGS="--minutes 30")
	$(PYTHON) -m tests.soak $(SOAK_ARGS)

clean: ## remove .venv, caches and what the development server left
	rm -rf $(VENV) .toolbelay .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist bench/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The first interpreter that is new enough and complete; `make PYTHON3=/path/to/python venv` chooses another.
$(BASE):
	@for candidate in $(PYTHON3) python3 python3.13 python3.12 python3.11 python3.14 python; do \
		if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			echo "$$candidate -m venv $(VENV)"; \
			"$$candidate" -m venv $(VENV) && touch $@ && exit 0; \
		fi; \
	done; \
	echo 'No Python of version 3.11 or newer with its venv module was found; name one with PYTHON3=/path/to/python.' >&2; \
	exit 1

$(RUNTIME): requirements.txt requirements-build.txt pyproject.toml | $(BASE)
	$(PIP) install --quiet --require-hashes -r requirements.txt -r requirements-build.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): requirements-dev.txt pyproject.toml | $(BASE)
	$(PIP) install --quiet --require-hashes -r requirements-dev.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@ $(RUNTIME)
