# make demo and make test set up all that they need; nothing but Python 3.11+ and make is expected.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: help setup demo demo-check experiments test test-slow clean

help:
	@echo "make demo       generate households, compare models on them, show the table, then a page that looks into accounts"
	@echo "make demo-check the same, and the page is asked once and taken down"
	@echo "make experiments  every experiment of the paper in minutes, on generated households"
	@echo "make test       lint, types and tests"
	@echo "make test-slow  what takes longer: 10,000 mutated files, every extra in an environment of its own"
	@echo "make setup      only create the environment in $(VENV)"
	@echo "make clean      remove the environment and the demo"

setup: $(VENV)/.setup

$(VENV)/.setup: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[train,report,export,serve]'
	touch $@

$(VENV)/.setup-dev: $(VENV)/.setup
	$(PIP) --editable '.[all,dev]'
	touch $@

demo: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo

demo-check: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo --check

experiments: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" lightgc2n experiment all --quick --out demo/experiments

test: $(VENV)/.setup-dev
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check

test-slow: $(VENV)/.setup-dev
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check -m slow

clean:
	rm -rf $(VENV) demo
