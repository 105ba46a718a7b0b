# One list of recipes, for people and for CI. `make` alone lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo fmt check test-core test test-spark test-kafka test-web test-long fuzz peers mutants chaos bench compare metrics web wheel memory proto docs lock clean

help: ## list these recipes
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## make .venv with exactly the versions of requirements.lock

demo: ## build what is missing, and show a simulated city on a live map (ARGS="--on local --port 9000")
	@$(MAKE) --no-print-directory --silent -j2 setup web
	@$(BIN)/millrace demo $(ARGS) || test $$? -eq 130  # Ctrl-C is how it ends

.uv/bin/uv:
	$(PYTHON) -m venv .uv
	.uv/bin/pip install --quiet --disable-pip-version-check uv==0.13.7

$(VENV)/.ready: requirements.lock pyproject.toml | $(UV)
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "millrace needs Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0] + "; say make PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(UV) venv --quiet --no-python-downloads --python $(PYTHON) $(VENV)
	@echo "the packages of requirements.lock go into $(VENV)"
	VIRTUAL_ENV=$(VENV) $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements.lock
	VIRTUAL_ENV=$(VENV) $(UV) pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

fmt: setup ## format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

check: setup ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test-core: setup ## the quick part, to run after each edit: random cases by the handful, and no test that starts processes or takes seconds
	HYPOTHESIS_PROFILE=few $(BIN)/pytest -m "not slow and not spark and not kafka and not web and not long and not wheel and not recordings and not root" -n 2 $(ARGS)

test: setup ## all tests that this machine can run; says which it leaves out (ARGS="-k name" picks)
	$(BIN)/pytest -m "not spark and not kafka and not web and not long" -n 2 $(ARGS) || test $$? -eq 5
	$(BIN)/pytest -m "kafka and not spark and not long" $(ARGS) || test $$? -eq 5
	$(BIN)/pytest -m "web and not long" $(ARGS) || test $$? -eq 5
	$(BIN)/pytest -m "spark and not long" $(ARGS) || test $$? -eq 5

test-spark: setup ## only the tests that start Spark
	$(BIN)/pytest -m "spark and not long" $(ARGS)

test-kafka: setup ## only the tests that start a Kafka broker
	$(BIN)/pytest -m "kafka and not long" $(ARGS)

test-web: setup web ## only the tests that open the map in Chromium
	$(BIN)/pytest -m "web and not long" $(ARGS)

test-long: setup ## the tests that take minutes
	$(BIN)/pytest -m long $(ARGS)

fuzz: setup ## wrong, damaged and hostile input at every entrance, about 100,000 times (FUZZ_CASES=4800 for each of 21 fuzzers)
	FUZZ_CASES=$(or $(FUZZ_CASES),4800) $(BIN)/pytest tests/fuzz -n 2 $(ARGS)

peers: setup ## random cases, also run by Apache Beam, Flink CEP, Trino and DuckDB (PEER_CASES=1500)
	PEER_CASES=$(or $(PEER_CASES),1500) $(BIN)/pytest -m long tests/peers $(ARGS)

mutants: setup ## make small wrong changes to the engine, one at a time, and see that the tests notice (ARGS="--only lateness")
	PYTHONPATH=tests $(BIN)/python -m mutants.run $(ARGS)

chaos: setup ## kill runs again and again while events flow, and compare the results (ARGS="--kills 20", "--log kafka", "--log kafka --on local", "--on local")
	$(BIN)/python -m bench.chaos $(ARGS)

bench: setup ## engine and Spark beside plain Structured Streaming, and every kind of window, trigger and aggregate, as a table
	$(BIN)/millrace bench engine $(ARGS)

compare: setup ## this tree beside an earlier one, measured in turn: BASE=<commit> (ARGS="--only local --rounds 5")
	$(BIN)/python -m bench.compare $(BASE) $(ARGS)

metrics: setup ## how large the source is, and what makes it hard to read
	@$(BIN)/python -m bench.metrics $(ARGS)

web: | $(UV) ## build the page of the live map, if its sources changed; fetches Node where there is none
	@$(or $(wildcard $(BIN)/python),$(PYTHON)) web/build.py

wheel: setup web ## dist/*.whl, which carries the page
	$(BIN)/python -m hatchling build -t wheel $(ARGS)

memory: setup ## memory of all processes over a simulated day, as CSV and SVG (ARGS="--on spark --hours 24")
	$(BIN)/python -m bench.memory $(ARGS)

proto: setup ## generate the *_pb2.py files from the *.proto files
	$(BIN)/python -m grpc_tools.protoc --proto_path=src --python_out=src --pyi_out=src $$(cd src && find millrace -name '*.proto')

docs: setup ## write the reference of settings and commands anew, and what the pages show: pictures and printed lines
	mkdir -p docs/reference
	$(BIN)/python -m millrace.cli.commands.reference docs/reference
	PYTHONPATH=tests $(BIN)/python -m matrix.page docs/reference/coverage.md
	PYTHONPATH=tests $(BIN)/python -m matrix.patterns --page
	$(BIN)/python docs/documents.py

lock: $(UV) ## resolve requirements.lock anew from pyproject.toml
	$(UV) pip compile pyproject.toml --all-extras --generate-hashes --universal --python-version 3.11 \
		--no-header --no-emit-index-url --no-emit-find-links --quiet --output-file requirements.lock $(ARGS)

clean: ## remove environments, caches and builds; leaves millrace-data alone
	rm -rf $(VENV) .uv .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
