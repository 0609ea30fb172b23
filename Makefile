# Three commands do everything on a fresh machine: `make demo`, `make test` and `make docs`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo docs test fast lint experiment attack clean

setup: $(STAMP)

# The stamp is written last: an interrupted installation is begun again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Carré needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

demo: setup
	$(BIN)/carre demo --out demo

# Warnings are errors, and what was built before is left out of account.
docs: setup
	rm -rf docs/_build
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "The documentation is in docs/_build/html/index.html; open it in a browser."

# One thread per process: see tests/conftest.py.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q

fast: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typed_calls.py

experiment: setup
	$(BIN)/python experiments/core/run.py

# The full dose of tests/attack, in about a quarter of an hour.
attack: setup
	$(BIN)/python experiments/attack/run.py

clean:
	rm -rf $(VENV) demo docs/_build .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
