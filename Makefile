PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The package and what it needs: a quarter of the distributions of .[dev].
INSTALLED := $(VENV)/.installed
# Tests start hundreds of processes; without bytecode each compiles the whole package anew.
unexport PYTHONDONTWRITEBYTECODE
# Processes beside each other share the cores; threads of BLAS in each would get in their way.
export OPENBLAS_NUM_THREADS ?= 1

EXAMPLES := $(patsubst examples/%.py,example-%,$(wildcard examples/[!_]*.py)) \
	$(patsubst examples/%/__main__.py,example-%,$(wildcard examples/*/__main__.py))
# Further runs of these would differ in their seeds alone; tests take the hundred rounds of the third.
few-demo := --seeds 1
few-ryu_kim_power_flow := --seeds 1 --rounds 30
few-chan_xie_zhao_elastic_net := --repetitions 2

# Settings of tests.machines, each a target: a few cases of each test function, or all with CASES=.
MACHINES := bare newest next kernel ascii turkish homeless blanks readonly user sdist shuffled \
	hashes optimized zone offline fresh
CASES ?= 1
# Of a night: the file that rows are appended to, and the first seed of campaigns and mutation.
ROWS ?=
SEED ?= 0
HISTORY ?= out/nights.jsonl
KEPT := $(if $(ROWS),--rows $(ROWS))
# Modules that a night's mutation run plants faults in.
MUTATED ?= model.adjacency sensitivity.norms run.gate $(addprefix privacy.,accounts contraction gaussian \
	linear_term noise split_noise truncation)

.PHONY: demo test lowest versions lint format types examples docs look wheel dist gallery printed weight prose check machines mutation bench utility campaigns night nightly clean

demo: $(INSTALLED)  ## what noise hides and costs on the 14-bus network; the picture is out/demo.png
	$(BIN)/python -m examples.demo --plot out

test: $(READY)  ## all tests
	$(BIN)/python -m tests.kernels & \
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

lowest: $(READY)  ## what depends on versions most, with the lowest that pyproject.toml allows
	$(BIN)/python -m tests.versions --quick lowest

versions: $(READY)  ## all tests on lowest and newest versions, and on every Python
	$(BIN)/python -m tests.versions

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)
	$(BIN)/pyright --pythonpath $(BIN)/python

examples: $(EXAMPLES)  ## every script in examples/; with --jobs 2, two at a time

$(EXAMPLES): example-%: $(READY)
	$(BIN)/python -W error -m examples.$* $(few-$*)

docs: $(READY)  ## the site, in out/site: all pages, notebooks executed; warnings are errors
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html docs out/site
	$(BIN)/python -m pytest -q -m site tests/site

look: docs  ## the first page and a lesson in a browser; pictures in out/look
	$(BIN)/python -m pytest -q -m browser tests/site

wheel: $(READY)  ## the README's example from a wheel, on every Python here, in environments with nothing else
	$(BIN)/python -m tests.wheel

dist: $(READY)  ## what is published, in dist/: a source distribution, and a wheel made from it
	$(BIN)/python -m build --no-isolation --outdir dist

gallery: $(READY)  ## draws the pictures of the gallery and the landing page anew
	$(BIN)/python docs/gallery.py

printed: $(READY)  ## writes what the code on the pages prints into them anew
	$(BIN)/python -m tests.pages

prose: $(READY)  ## marks in sentences of the docs and of docstrings; --list RULE shows them
	$(BIN)/python -m tests.prose --check

weight: $(READY)  ## how much there is to read, beside the figures of the last commit
	$(BIN)/python -m tests.weight

check: test lowest lint types examples docs wheel

machines: $(READY)  ## tests as on other machines, one after the other; machine-sdist runs one
	$(BIN)/python -m tests.machines --all --cases "$(CASES)"

$(addprefix machine-,$(MACHINES)): machine-%: $(READY)
	$(BIN)/python -m tests.machines $* --cases "$(CASES)"

mutation: $(READY)  ## faults planted in modules, and the tests that notice them
	$(BIN)/python -m tests.mutation --faults 40 --seed $(SEED) $(KEPT) $(MUTATED)

bench: $(READY)  ## speed next to solvers, cvxpy and numpy; see docs/benchmarks/speed.md for options
	$(BIN)/python -m pytest -m timed tests/benchmarks
	$(BIN)/python -m tests.benchmarks.speed $(KEPT) $(BENCH)

utility: $(READY)  ## what answers are worth: defaults and tuned settings next to the best by hand
	$(BIN)/python -m pytest -m study
	$(BIN)/python -m tests.benchmarks.utility $(KEPT) $(UTILITY)
	$(BIN)/python -m tests.benchmarks.utility.beyond

campaigns: $(READY)  ## attacks and injected faults, in full; the tests run short forms
	$(BIN)/python -m tests.campaigns --seed $(SEED) $(KEPT)

night:  ## a target as a night runs it, with a seed of its own; its rows are in out/rows
	$(PYTHON) -m tests.nightly run --rows out/rows/$(TARGET).jsonl $(TARGET) \
		$(MAKE) $(TARGET) CASES="$(CASES)" ROWS=out/rows/$(TARGET).jsonl SEED=$$(date +%Y%m%d)

nightly:  ## the page out/nightly.html of all nights in HISTORY, to which the rows of ROWS are appended
	$(PYTHON) -m tests.nightly page $(or $(ROWS),out/rows) $(HISTORY) --out out/nightly.html

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis out

$(INSTALLED): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $(INSTALLED)

$(READY): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)
