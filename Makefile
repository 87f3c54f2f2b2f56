# Every target makes the virtual environment it needs; nothing has to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Tests run side by side, a process with one thread on every core (at most eight: each takes up to a gigabyte).
WORKERS ?= auto
PYTEST := -m pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal
ONE_THREAD := OMP_NUM_THREADS=1
INSTALL := -m pip install --quiet --no-compile --disable-pip-version-check
EXTRAS := botorch,maps,parquet,plot,tensorboard,test

.PHONY: demo test coverage test-oldest test-newest torture elsewhere lint format docs dist bench reproduce-small clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) -c constraints.txt -e ".[dev]"
	touch $@

demo: $(STAMP)  ## fit a noisy surface of 5,000 points and draw it
	$(BIN)/python -m warmgp.demo --out demo.png

test: $(STAMP)  ## the tests
	$(ONE_THREAD) $(BIN)/python $(PYTEST) --no-cov -m "not whole"

coverage: $(STAMP)  ## the same and the longest ones, with coverage of lines, at least 90%: twice the time
	$(ONE_THREAD) $(BIN)/python $(PYTEST) --cov --cov-report=term --cov-fail-under=90

test-oldest:  ## the suite with the lowest versions that pyproject.toml allows, in an environment of its own
	$(PYTHON) -m venv build/oldest
	build/oldest/bin/python $(INSTALL) -c constraints-oldest.txt -e ".[$(EXTRAS)]"
	$(ONE_THREAD) build/oldest/bin/python $(PYTEST) --no-cov

test-newest:  ## the suite with the newest versions there are, in an environment of its own
	$(PYTHON) -m venv build/newest
	build/newest/bin/python $(INSTALL) --upgrade -e ".[$(EXTRAS)]"
	$(ONE_THREAD) build/newest/bin/python $(PYTEST) --no-cov

torture: $(STAMP)  ## the whole battery of hostile data, files and kills, with a new seed; at most half an hour on two cores
	$(ONE_THREAD) $(BIN)/python $(PYTEST) --no-cov tests/hostile --hostile-scale 1

elsewhere: $(STAMP)  ## tests of estimators on a device that is not there: what would mix a GPU's tensors with a CPU's fails
	$(ONE_THREAD) $(BIN)/python $(PYTEST) --no-cov --elsewhere -m "not whole" tests/estimator tests/for_botorch \
		tests/hostile tests/reporting

lint: $(STAMP)  ## ruff (rules and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## the documentation, as a site in site/; a broken link or a missing page fails
	$(BIN)/mkdocs build --strict

dist: $(STAMP)  ## sdist and wheel in dist/, checked; the tests of the unpacked sdist run against the installed wheel
	rm -rf dist build/dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv build/dist
	build/dist/bin/python $(INSTALL) -c constraints.txt "$$(ls $(CURDIR)/dist/*.whl)[$(EXTRAS)]"
	tar -xf dist/*.tar.gz --strip-components 1 --one-top-level=build/dist/source
	cd build/dist/source && ../bin/python -c "import warmgp; assert 'site-packages' in warmgp.__file__, warmgp.__file__"
	cd build/dist/source && $(ONE_THREAD) ../bin/python $(PYTEST) --no-cov -m "not slow and not whole"

bench: $(STAMP)  ## kernel products and one training step on this machine, as a table and JSON
	$(BIN)/python -m benchmarks.products --out benchmarks/results/products-local.json

reproduce-small: $(STAMP)  ## every experiment of the paper at a few hundred points, and a page of what came out
	$(BIN)/python -m experiments.run all --small --device cpu --store build/small/store
	$(BIN)/python -m experiments.page --store build/small/store --out build/small/results.md

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .coverage demo.png site dist build/dist build/oldest build/newest
