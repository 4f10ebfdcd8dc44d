# `make help` lists the targets.

PYTHON ?=
# Versions that are known to work together. `make setup CONSTRAINTS=` takes the newest there are.
CONSTRAINTS ?= constraints.txt

BIN := .venv/bin
# The application of `make demo`.
FLIGHTS := PYTHONPATH=examples $(BIN)/python -m flights
PINS := $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
# More than four would wait for the tests of Spark, which share a session.
PROCESSES := -n auto --maxprocesses 4 --dist loadgroup
WHAT := pyproject.toml $(CONSTRAINTS) scripts/make-venv

SETUP := .venv/setup.stamp
DEMO := .venv/demo.stamp
DEMO_SPARK := .venv/demo-spark.stamp

# A Python that is asked for may not be the one that the environment has.
ifneq ($(PYTHON),)
$(SETUP) $(DEMO) $(DEMO_SPARK): again
endif
# A stamp holds the folder it was made in: an environment that came along with a copied tree is not taken for ours.
ifneq ($(shell cat $(SETUP) 2>/dev/null),$(CURDIR))
$(SETUP): again
endif
ifneq ($(shell cat $(DEMO) 2>/dev/null),$(CURDIR))
$(DEMO): again
endif
ifneq ($(shell cat $(DEMO_SPARK) 2>/dev/null),$(CURDIR))
$(DEMO_SPARK): again
endif

.PHONY: help setup demo demo-spark java test lint types unit format bench test-all-pythons public-names constraints docs pictures news dist clean again

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SETUP) ## make .venv with all that development needs (PYTHON=… chooses the Python)

$(SETUP): $(WHAT)
	@PYTHON="$(PYTHON)" scripts/make-venv .venv $(PINS) --group dev --editable '.[files,sketch,spark]'
	@echo "$(CURDIR)" | tee $(DEMO) $(DEMO_SPARK) > $@

$(DEMO): $(WHAT)
	@PYTHON="$(PYTHON)" scripts/make-venv .venv $(PINS) --group flights --editable .
	@echo "$(CURDIR)" > $@

demo: $(DEMO) ## replay the flights of 2013 with the weather: worst hours and days, storms, aircraft
	@$(FLIGHTS) replay

$(DEMO_SPARK): $(WHAT)
	@PYTHON="$(PYTHON)" scripts/make-venv .venv $(PINS) --group flights --editable '.[spark]'
	@echo "$(CURDIR)" | tee $(DEMO) > $@

demo-spark: $(DEMO_SPARK) ## run the same pipelines over history on Spark, and go on live from what they left; needs Java
	@scripts/have-java required
	@$(FLIGHTS) backfill

java: # Spark needs it: install it where that can be done, else say how
	@scripts/have-java

test: java lint types ## everything: format, lint, types, architecture, unit, conformance, doc snippets, examples
	@$(BIN)/python -m pytest -q $(PROCESSES)

lint: $(SETUP) ## check format and lint rules
	@$(BIN)/ruff format --check --quiet . || { echo "'make format' does that"; exit 1; }
	@$(BIN)/ruff check --quiet .

types: $(SETUP) ## mypy strict and pyright strict
	@$(BIN)/mypy
	@$(BIN)/basedpyright --warnings

unit: $(SETUP) ## the tests that take less than a second each
	@$(BIN)/python -m pytest -q -m 'not slow' $(PROCESSES)

format: $(SETUP) ## format, and fix what lint can fix
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

bench: $(SETUP) ## list the benchmarks; `.venv/bin/python -m bench NAME` runs one
	@$(BIN)/python -m bench

test-all-pythons: java ## the tests under each of Python 3.11 to 3.14 that this machine has
	@PROCESSES='$(PROCESSES)' scripts/test-all-pythons $(PINS) --group test --group types --group flights --editable '.[files,sketch,spark]'

public-names: $(SETUP) ## write the list of public names anew, after they changed on purpose
	@$(BIN)/python -m tests.architecture.public_names

constraints: ## write constraints.txt anew with today's versions
	@scripts/write-constraints

docs: $(SETUP) ## build the guides and the API reference in build/docs, and check their links
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

pictures: $(SETUP) ## draw the pictures of the guide anew, after what they show has changed
	@PYTHON=$(BIN)/python scripts/draw-pictures

news: $(SETUP) ## show what the news fragments make of the next changelog
	@$(BIN)/towncrier build --draft --version next

dist: $(SETUP) ## build the wheel and the sdist in dist/, and check what a package index would refuse
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist
	@$(BIN)/twine check --strict dist/*

clean: ## remove environments, caches, build results and the output of the demo
	@rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist flights-output
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
