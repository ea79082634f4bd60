# redraft: `make demo` shows a rewrite end to end, `make test` checks everything.
# Both work from a fresh clone: they need Python >= 3.10 with venv, make and a C compiler.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MODEL := qwen2.5-coder-1.5b-instruct

.PHONY: demo test test-ready check install clean
.DEFAULT_GOAL := install

install: $(STAMP)

# torch goes first and alone: with its exact version and nothing else to resolve,
# pip takes the build that the index offers for this machine.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "redraft needs Python 3.10 or newer: set PYTHON=/path/to/python3")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --upgrade pip
	$(BIN)/python -m pip install -c constraints.txt torch
	$(BIN)/python -m pip install -c constraints.txt -e '.[engine,plot,dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/python -m redraft.demo

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: test-ready
	$(BIN)/python -m pytest

# All of `make test` that comes before pytest; .ci/run needs it by itself.
test-ready: check
	$(BIN)/redraft models pull $(MODEL)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
