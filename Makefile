# Every target makes the virtual environment it needs; nothing has to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test torture lint format docs bench reproduce-small clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: $(STAMP)  ## fit a noisy surface of 5,000 points and draw it
	$(BIN)/python -m warmgp.demo --out demo.png

test: $(STAMP)  ## the whole test suite with coverage
	$(BIN)/python -m pytest --cov --cov-report=term --cov-fail-under=90

torture: $(STAMP)  ## the whole battery of tests/hostile, with a new seed every time; two workers of one thread each
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --no-cov -n 2 tests/hostile --hostile-scale 1

lint: $(STAMP)  ## ruff (rules and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## the documentation, as a site in site/; a broken link or a missing page fails
	$(BIN)/mkdocs build --strict

bench: $(STAMP)  ## kernel products and one training step on this machine, as a table and JSON
	$(BIN)/python -m benchmarks.products --out benchmarks/results/products-local.json

reproduce-small: $(STAMP)  ## every experiment of the paper at a few hundred points, and a page of what came out
	$(BIN)/python -m experiments.run all --small --device cpu --store build/small/store
	$(BIN)/python -m experiments.page --store build/small/store --out build/small/results.md

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .coverage demo.png site
