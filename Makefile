# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
READY := $(VENV)/.ready
SITE := $(VENV)/.site
EXAMPLES := $(VENV)/.examples
RELEASE := $(VENV)/.release
TRACKERS := $(VENV)/.trackers
PIP := $(BIN)/pip install --no-compile --disable-pip-version-check -q -c constraints.txt

# Hundreds of processes start during the tests: each would compile the package again where this is set.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs test test-all test-processors lint suite suite-all suite-plain browser release setup clean

demo: $(BASE)
	$(BIN)/deeppruning demo

# Not --quiet: mkdocs then drops its warnings before --strict counts them. The variable silences the theme's
# advertisement, which is no warning about these pages.
docs: $(SITE)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open $(CURDIR)/site/index.html"

# Types are checked while the tests wait for processes and clusters to start.
test: $(READY) browser
	$(MAKE) --no-print-directory -j 2 lint suite suite-plain

# What is slow and rarely breaks, too.
test-all: $(READY) $(SITE) $(EXAMPLES) $(TRACKERS) browser
	$(MAKE) --no-print-directory -j 2 lint suite-all

# Four at a time on two cores: many tests wait for a process or a cluster to start.
suite: $(READY)
	$(BIN)/pytest -n 4 --dist worksteal -q

suite-all: $(READY)
	$(BIN)/pytest -n 4 --dist worksteal -q -m 'slow or not slow'

# What trains, draws weights or compares runs, once more with the plainest instructions: another processor
# computes other last bits, and no test may depend on them. Where nothing heeds these names, nothing changes.
PLAINEST := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2
DRAWN := tests/runs/test_format.py tests/jobs/test_run.py tests/searching/test_guided_search.py \
  tests/refitting/test_refit.py::test_a_thin_network_comes_nearer_to_the_original_and_the_same_way_every_time \
  tests/training/test_loop.py tests/training/test_evaluate.py tests/training/test_checkpoint.py \
  tests/targets/test_targets.py::test_best_finds_networks_within_limits_without_a_search \
  tests/test_damage.py::test_the_whole_file_is_read
suite-plain: $(READY)
	$(PLAINEST) $(BIN)/pytest -n 2 --dist worksteal -q -k 'not instructions' $(DRAWN)

# The whole suite by every kind of processor that this one can act as, with more threads, and under load.
test-processors: $(READY)
	$(BIN)/python tools/processors.py

# The page is tested in a real browser where there is one; a build machine may install it by itself.
browser:
	@command -v chromium >/dev/null || [ "$$CI" != true ] || [ "$$(id -u)" != 0 ] || \
	  { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1 || \
	  echo "no chromium: the browser tests will be skipped"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The sdist and the wheel in dist/, checked, and the wheel tried in a new environment as a new user would.
release: $(RELEASE)
	$(BIN)/python tools/release.py

setup: $(READY)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "DeepPruningES needs Python 3.10 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)

# With plots, and with ONNX, which is what the demo says to try next.
$(BASE): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[onnx,plots]' || { $(PIP) -e . && echo "no ONNX for this Python: other formats can be exported"; }
	touch $@

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev,ray]' || \
	  { $(PIP) -e '.[dev]' && echo "no Ray for this Python: the cluster tests will be skipped"; }
	@# What every process of a test loads, on all cores; the rest is compiled when it is used.
	$(BIN)/python -m compileall -q -j 0 $(foreach package,torch numpy ray,$(VENV)/lib/python*/site-packages/$(package)) || true
	touch $(BASE) $@

$(SITE): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[docs]'
	touch $(BASE) $@

# What a few examples use; large, so only where all tests are run.
$(EXAMPLES): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[examples]' || echo "no Lightning or transformers for this Python: their tests will be skipped"
	touch $(BASE) $@

$(RELEASE): constraints.txt | $(BIN)/python
	$(PIP) build twine
	touch $@

# What records runs elsewhere; large as well.
$(TRACKERS): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[trackers]' || echo "no trackers for this Python: their tests will be skipped"
	touch $(BASE) $@

clean:
	rm -rf $(VENV) site dist
