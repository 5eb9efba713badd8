# Everything a newcomer needs: `make test` and `make demo` set up what they use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help test lint types unit demo demo-core test-deep test-faults bench bench-core clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Installed once, and again only when what must be installed has changed. torch first and by its exact version: a range
# would take the newest build and everything that comes with it.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, $(PYTHON) is " + sys.version)'
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing into $(VENV) (minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep '^torch==' constraints.txt) -c constraints.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@

test: lint types unit ## Lint, types and tests: what must pass

lint: $(READY) ## Style and format (ruff)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY) ## Types of src (mypy)
	@$(BIN)/mypy

# Tests run in as many processes as there are cores, at most four: each holds its own torch. On one core, in pytest's own.
CORES := $(shell getconf _NPROCESSORS_ONLN)
PROCESSES ?= $(shell test $(CORES) -gt 1 && echo $$(( $(CORES) < 4 ? $(CORES) : 4 )) || echo 0)

unit: $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile

# MODEL=folder asks another model than the one that comes along.
ASK_WITH = $(if $(MODEL),--model $(MODEL))
DEMO := out/demo
BOOK := examples/wuthering-heights.txt

demo: $(READY) ## Ask a contract and a whole novel on this machine's CPU; pages to look at go to out/demo
	@mkdir -p $(DEMO)
	$(BIN)/vcc ask examples/contract.txt "Which law governs this agreement?" "When does it end?" \
	  "How much insurance must each party have?" --top 1 --html $(DEMO)/contract.html $(ASK_WITH)
	$(BIN)/vcc ask $(BOOK) "What is the name of Mr. Heathcliff's dwelling?" \
	  "What illness did Mrs. Linton have?" --top 1 --html $(DEMO)/novel.html $(ASK_WITH)
	$(BIN)/vcc see $(BOOK) "What is the name of Mr. Heathcliff's dwelling?" \
	  --top 1 --html $(DEMO)/heatmap.html --png $(DEMO)/heatmap.png $(ASK_WITH)
	@echo "Look at the pages in $(DEMO): contract.html, novel.html and heatmap.html."

demo-core: $(READY) ## Compress a long sequence, show what each layer keeps, check it against the dense formula
	@$(BIN)/python examples/synthetic.py

test-deep: $(READY) ## All tests with the slow ones, 10,000 cases for each property (an hour)
	@HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -m ""

test-faults: $(READY) ## Kill a training run and watch it come back
	@$(BIN)/python tests/faults/kill_test.py

bench: $(READY) ## Speed and memory of whole models against dense ones
	@$(BIN)/vcc bench

bench-core: $(READY) ## Cost of the tree against sequence length, 4K to 1M tokens (minutes, CPU)
	@$(BIN)/python benchmarks/core.py

clean: ## Remove what was installed and cached
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
