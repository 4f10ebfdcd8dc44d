# `make help` lists the targets.

PYTHON ?=
# Versions that work together. `make setup CONSTRAINTS=` installs the newest versions.
CONSTRAINTS ?= constraints.txt

BIN := .venv/bin
# The application of `make demo`.
FLIGHTS := PYTHONPATH=examples $(BIN)/python -m flights
# With checkpoints, which the page shows.
SHOWN := --web --checkpoint-dir flights-output/replay/checkpoints --checkpoint-every 2s --from fresh
PINS := $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
# tests/processes.py chooses their number and distributes the tests.
PROCESSES := -n auto
# For tests that do not wait.
BUSY_PROCESSES := -n logical
# Of `make fuzz`.
MINUTES := 1
SEED := random
# Folders of tests that run whole jobs, programs or documents, and of those that need a server or a browser; `make unit`
# omits them. It runs all other folders, so a new one belongs to it.
WHOLE := backfill bench cli crash docs examples fuzz load packaging runtime spark web
SERVERS := kafka mqtt nats postgres rabbitmq redis
REQUIREMENTS := pyproject.toml $(CONSTRAINTS) scripts/make-venv

# Set in many container images. Without byte code, each process that a test starts compiles aflow, and importing it takes
# twice the time.
unexport PYTHONDONTWRITEBYTECODE

SETUP := .venv/setup.stamp
DEMO := .venv/demo.stamp
DEMO_SPARK := .venv/demo-spark.stamp

# The environment may have another Python than the requested one.
ifneq ($(PYTHON),)
$(SETUP) $(DEMO) $(DEMO_SPARK): again
endif
# A stamp contains its folder, so the environment of a copied tree is not used.
ifneq ($(shell cat $(SETUP) 2>/dev/null),$(CURDIR))
$(SETUP): again
endif
ifneq ($(shell cat $(DEMO) 2>/dev/null),$(CURDIR))
$(DEMO): again
endif
ifneq ($(shell cat $(DEMO_SPARK) 2>/dev/null),$(CURDIR))
$(DEMO_SPARK): again
endif

.PHONY: help setup demo demo-spark java chromium kafka mosquitto nats postgres rabbitmq redis test lint types mypy pyright unit properties fuzz format bench peers test-all-pythons public-names constraints docs pictures screenshots news dist clean again

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SETUP) ## make .venv with all requirements of development (PYTHON=… chooses the Python)

$(SETUP): $(REQUIREMENTS)
	@PYTHON="$(PYTHON)" scripts/make-venv .venv $(PINS) --group dev --editable '.[files,sketch,spark]'
	@echo "$(CURDIR)" | tee $(DEMO) $(DEMO_SPARK) > $@

$(DEMO): $(REQUIREMENTS)
	@PYTHON="$(PYTHON)" scripts/make-venv .venv $(PINS) --group flights --editable '.[web]'
	@echo "$(CURDIR)" > $@

demo: $(DEMO) ## replay the flights of 2013 with the weather; WEB=1 prints the address of a page that shows the job
	@$(FLIGHTS) replay $(if $(WEB),$(SHOWN))

$(DEMO_SPARK): $(REQUIREMENTS)
	@PYTHON="$(PYTHON)" scripts/make-venv .venv $(PINS) --group flights --editable '.[spark,web]'
	@echo "$(CURDIR)" | tee $(DEMO) > $@

demo-spark: $(DEMO_SPARK) ## run a pipeline over history on Spark, and continue live; STREAM=1 streams arriving files; needs Java
	@scripts/have-java required
	@$(FLIGHTS) $(if $(STREAM),stream,backfill)

java: # install Java for Spark if possible, else print the command
	@scripts/have-java

chromium: # install Chromium for the tests of the page if possible, else print the command
	@scripts/have-chromium

kafka: java # fetch the Kafka of the tests if possible, else print what to do
	@scripts/have-kafka > /dev/null

postgres: # install a PostgreSQL server for tests if possible, else print the command
	@scripts/have-postgres

rabbitmq: # install a RabbitMQ server for tests if possible, else print the command
	@scripts/have-rabbitmq

mosquitto: # install an MQTT broker for tests if possible, else print the command
	@scripts/have-mosquitto

redis: # install a Redis server for tests if possible, else print the command
	@scripts/have-redis

nats: # install a NATS server for tests if possible, else print the command
	@scripts/have-nats

test: java chromium kafka mosquitto nats postgres rabbitmq redis lint ## run all checks: format, lint, types, architecture, unit, conformance, doc snippets, examples
	@$(BIN)/python -m pytest -q --type-checks $(PROCESSES)

lint: $(SETUP) ## check format and lint rules
	@$(BIN)/ruff format --check --quiet . || { echo "run 'make format'"; exit 1; }
	@$(BIN)/ruff check --quiet .

types: $(SETUP) ## run mypy and pyright, both strict
	@$(MAKE) --no-print-directory --jobs=2 --keep-going $(if $(filter output-sync,$(.FEATURES)),--output-sync) mypy pyright

mypy:
	@$(BIN)/mypy

pyright:
	@$(BIN)/basedpyright --warnings

unit: $(SETUP) ## run the tests of single parts: no whole jobs, programs, servers or documents, and none of more than a second
	@$(BIN)/python -m pytest -q -m 'not slow' --hypothesis-profile=unit $(WHOLE:%=--ignore=tests/%) $(SERVERS:%=--ignore=tests/connectors/%) $(BUSY_PROCESSES)

properties: $(SETUP) ## run the properties with all of their examples; `make test` checks a quarter of them
	@$(BIN)/python -m pytest -q --hypothesis-profile=all -m hypothesis $(BUSY_PROCESSES)

fuzz: $(SETUP) ## compare random flows with their oracles for MINUTES (1), in two processes; SEED repeats a failure
	@FUZZ_SECONDS=$$(($(MINUTES) * 60)) FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -q tests/fuzz -n 2

format: $(SETUP) ## format, and apply the fixes of lint
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

bench: $(SETUP) ## list the benchmarks; `.venv/bin/python -m bench NAME` runs one
	@$(BIN)/python -m bench

peers: $(SETUP) java nats ## run the same jobs in aflow and in other stream processors, and print the table; takes some 20 minutes
	@$(BIN)/python -m bench.peers

test-all-pythons: java chromium kafka mosquitto nats postgres rabbitmq redis ## run the tests under each of Python 3.11 to 3.14 on this machine
	@PROCESSES='$(PROCESSES)' scripts/test-all-pythons $(PINS) --group test --group types --group flights --editable '.[files,sketch,spark]'

public-names: $(SETUP) ## write the list of public names after an intended change
	@$(BIN)/python -m tests.architecture.public_names

constraints: ## write constraints.txt with today's versions
	@scripts/write-constraints

docs: $(SETUP) ## build the guides and the API reference in build/docs, and check their links
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

pictures: $(SETUP) ## draw the pictures of the guide after a change of their data
	@PYTHON=$(BIN)/python scripts/draw-pictures

screenshots: $(SETUP) chromium ## take the screenshots of the guide after a change of the page
	@PYTHONPATH=examples $(BIN)/python -m scripts.pictures.screenshots

news: $(SETUP) ## print the next changelog from the news fragments
	@$(BIN)/towncrier build --draft --version next

dist: $(SETUP) ## build the wheel and the sdist in dist/, and run the checks of a package index
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist
	@$(BIN)/twine check --strict dist/*

clean: ## remove environments, caches, build results and the output of the demo
	@rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist flights-output
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
