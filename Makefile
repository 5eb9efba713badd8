# `make test` and `make demo` install what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help test check test-gpu lint types unit demo demo-core test-deep test-faults test-hostile test-browser test-fleet test-ray bench bench-core bench-serve clean docs test-docs dist test-wheel check-oldest test-container

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

PIP = $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check

# Reinstalled only when dependencies change. torch comes first, with its exact version: a range would install the newest
# build and its dependencies. Bytecode is compiled at the end, on all cores: pip uses one, and without write access every
# process would compile it again.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is required, $(PYTHON) is " + sys.version)'
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing into $(VENV) (minutes the first time)"
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check $$(grep '^torch==' constraints.txt) -c constraints.txt
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib src || true
	@touch $@

test: lint ## Lint, types and tests: all must pass
	@$(MAKE) --no-print-directory -j 2 types unit

lint: $(READY) ## Style and format (ruff)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY) ## Types of the library and the scripts (mypy)
	@$(BIN)/mypy

# One test process more than cores, at most four: many tests wait for child processes, and each process loads torch. On one
# core, pytest's own process.
CORES := $(shell getconf _NPROCESSORS_ONLN)
PROCESSES ?= $(shell test $(CORES) -gt 1 && echo $$(( $(CORES) < 3 ? 3 : 4 )) || echo 0)

unit: $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile -rs

check: $(READY) ## The tests of the core, hosts, questions and documents: three minutes, while you work
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile tests/core tests/hosts tests/qa tests/documents

test-gpu: $(READY) ## The tests that need a CUDA device
	@$(BIN)/python -m pytest -m gpu -rs

# MODEL=folder uses another model than the bundled one.
ASK_WITH = $(if $(MODEL),--model $(MODEL))
DEMO := out/demo
BOOK := examples/wuthering-heights.txt

demo: $(READY) ## Ask a contract and a novel on the CPU; writes pages to out/demo
	@mkdir -p $(DEMO)
	$(BIN)/vcc ask examples/contract.txt "Which law governs this agreement?" "When does it end?" \
	  "What is the warranty period?" --top 1 --html $(DEMO)/contract.html $(ASK_WITH)
	$(BIN)/vcc ask $(BOOK) "What is the name of Mr. Heathcliff's dwelling?" \
	  "What is the name of Edgar Linton's house?" --top 1 --html $(DEMO)/novel.html $(ASK_WITH)
	$(BIN)/vcc see $(BOOK) "What is the name of Mr. Heathcliff's dwelling?" \
	  --top 1 --html $(DEMO)/heatmap.html --png $(DEMO)/heatmap.png $(ASK_WITH)
	@echo "Look at the pages in $(DEMO): contract.html, novel.html and heatmap.html."

demo-core: $(READY) ## Compress a long sequence and check it against the dense formula
	@$(BIN)/python examples/synthetic.py

test-deep: $(READY) ## All tests including slow ones, 10,000 cases per property (an hour)
	@HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -m ""

test-faults: $(READY) ## Kill a training run and resume it
	@$(BIN)/python tests/faults/kill_test.py

LOAD_SECONDS ?= 600
test-hostile: $(READY) ## 1,000 hostile files and command lines, 1,000 requests, 1,000 MCP calls, 1,300 half-sent headers, ten minutes of load
	@$(BIN)/python -m pytest -m slow tests/documents/formats/test_linear.py
	@$(BIN)/python tests/faults/hostile_test.py
	@$(BIN)/python -m tests.serve.hostile
	@$(BIN)/python -m tests.serve.half_sent
	@$(BIN)/python -m tests.integrations.hostile 500
	@$(BIN)/python -m tests.integrations.hostile 500 --http
	@$(BIN)/python -m tests.serve.load --seconds $(LOAD_SECONDS)

AXE := out/axe/package/axe.min.js
test-browser: $(READY) ## Test the page of `vcc serve` in Chromium (minutes)
	@command -v chromium google-chrome $$VCC_BROWSER > /dev/null || { echo "No browser found. Debian and Ubuntu: apt-get install chromium; elsewhere: VCC_BROWSER=/path/to/chrome make test-browser"; exit 1; }
	@test -f $(AXE) || { mkdir -p out/axe && cd out/axe && npm pack --silent axe-core@4.14.0 > /dev/null && tar xzf axe-core-*.tgz; } || echo "npm could not fetch axe-core: accessibility is not checked"
	@$(BIN)/python -m pytest -m "" tests/browser -rs

bench-serve: $(READY) ## Throughput and latency of the service
	@$(BIN)/python benchmarks/serve_load.py

# FLEET="--documents 10000 --poisoned 100" is the full size.
test-fleet: $(READY) ## Kill workers and driver of a run over many documents, and compare the table (minutes)
	@PYTHONPATH=. $(BIN)/python tests/faults/fleet_kills.py $(FLEET)

test-ray: $(READY) ## The same on Ray, killing a node of a cluster (minutes; installs Ray)
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[ray]'
	@$(BIN)/python -m pytest -m "" tests/fleet/test_ray.py
	@PYTHONPATH=. $(BIN)/python tests/faults/ray_kills.py $(FLEET)

bench: $(READY) ## Speed and memory of VCC and dense models
	@$(BIN)/vcc bench

bench-core: $(READY) ## Cost of the tree by sequence length, 4K to 1M tokens (minutes, CPU)
	@$(BIN)/python benchmarks/core.py

# Releases. The tools of the site (the extra `docs`) are installed once; building it needs no network.
$(VENV)/.docs: $(READY)
	@$(PIP) -c constraints.txt zensical mkdocstrings-python
	@touch $@

docs: $(VENV)/.docs ## Build the site into out/site; a warning or a dead link is an error
	@$(BIN)/python docs/site/build.py

test-docs: $(READY) ## Run the code of every page and notebook (minutes)
	@$(BIN)/python -m pytest -m "" tests/test_snippets.py tests/test_notebooks.py tests/test_readme.py tests/test_numbers.py -rs

dist: $(READY) ## Build wheel and sdist of the last commit into dist/
	@rm -rf dist out/clean && mkdir -p dist out/clean
	@git archive HEAD | tar -x -C out/clean
	@$(PIP) -c constraints.txt build
	@$(BIN)/python -m build --outdir dist out/clean > out/build.log || { cat out/build.log; exit 1; }
	@ls -l dist

# PYTHON is the interpreter that gets the wheel: make test-wheel PYTHON=python3.14
test-wheel: ## Install dist/*.whl into an empty environment and use it: ask, review, wrap, serve, mcp (minutes)
	@test -n "$$(ls dist/*.whl 2> /dev/null)" || $(MAKE) --no-print-directory dist
	@$(PYTHON) tests/wheel.py dist/*.whl

OLDEST := .venv-oldest
check-oldest: ## `make check` with the oldest supported packages, in .venv-oldest (minutes)
	@test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	@$(subst $(BIN),$(OLDEST)/bin,$(PIP)) $$(grep '^torch==' constraints-oldest.txt) -c constraints-oldest.txt
	@$(subst $(BIN),$(OLDEST)/bin,$(PIP)) -c constraints-oldest.txt -e '.[all,dev]'
	@OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n $(PROCESSES) --dist loadfile tests/core tests/hosts tests/qa tests/documents

test-container: ## Build the image, run it read-only as nobody, and wait until it is healthy (needs docker)
	@tests/container.sh $(TORCH_FROM)

clean: ## Remove the environment and caches
	rm -rf $(VENV) $(OLDEST) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
