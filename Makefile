# make demo and make test set up all that they need; nothing but Python 3.11+ and make is expected.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: help setup demo demo-check demo-live experiments test test-services test-kernels test-slow docs clean

help:
	@echo "make demo       generate households, compare models on them, show the table, then a page that looks into accounts"
	@echo "make demo-check the same, and the page is asked once and taken down"
	@echo "make demo-live  a service that lives: events are replayed, the pipeline renews the model meanwhile, live quality on the page"
	@echo "make experiments  every experiment of the paper in minutes, on generated households"
	@echo "make test       lint, types and tests"
	@echo "make test-services  tests that need another process: the kernel of a notebook, PostgreSQL, a Ray cluster"
	@echo "make test-kernels  the Triton kernels in Triton's interpreter, where Triton can be installed"
	@echo "make test-slow  what takes longer: 10,000 mutated files, killed commands, every extra, the oldest and newest Python"
	@echo "make docs       the documentation site, in build/site"
	@echo "make setup      only create the environment in $(VENV)"
	@echo "make clean      remove the environment and the demo, as far as make made them"

setup: $(VENV)/.setup

$(VENV)/.setup: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	@if [ ! -x $(BIN)/python ]; then \
	  if [ ! -e $(VENV)/.made-by-make ] && [ -n "$$(ls -A $(VENV) 2>/dev/null)" ]; then \
	    echo "$(VENV) holds files that make did not make, and no working bin/python. Move it elsewhere, then try again." >&2; exit 2; \
	  fi; \
	  mkdir -p $(VENV) && touch $(VENV)/.made-by-make && $(PYTHON) -m venv $(VENV); \
	fi
	$(PIP) --editable '.[train,report,export,serve]'
	touch $@

$(VENV)/.setup-dev: $(VENV)/.setup
	$(PIP) --editable '.[all,dev]'
	touch $@

demo: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo

demo-check: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo --check

demo-live: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/demo_live.py

experiments: setup
	scripts/demo --claim
	PATH="$(CURDIR)/$(BIN):$$PATH" lightgc2n experiment all --quick --out demo/experiments

test: $(VENV)/.setup-dev
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check

test-services: $(VENV)/.setup-dev
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE POLARS_MAX_THREADS=1 $(BIN)/python -m pytest --quiet -m "services and not slow"

# Outside the dev extra: Triton exists for Linux alone. Its interpreter cannot read functions that the shape checks wrap.
test-kernels: $(VENV)/.setup-dev
	@if $(PIP) triton==3.9.0; then \
	  TRITON_INTERPRET=1 $(BIN)/python -m pytest --quiet -o addopts= tests/layers/test_kernels.py; \
	else echo "Triton could not be installed: its kernels are not tested" >&2; fi

test-slow: $(VENV)/.setup-dev
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check -m slow
	scripts/check_pythons

docs: $(VENV)/.setup-dev
	$(BIN)/python scripts/build_docs.py

clean:
	$(PYTHON) scripts/clean_demo.py
	if [ -e $(VENV)/.made-by-make ]; then rm -rf $(VENV); fi
