# The front door for people and CI. Everything runs in .venv, which make builds from PYTHON.

PYTHON ?= $(shell python3.11 -c "" 2>/dev/null && echo python3.11 || echo python3)
PYTEST_ARGS ?= -n2

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP) ## Run the examples, from validating a checkpoint onwards
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

test: lint ## Run every check: the linters, then the tests with coverage
	$(BIN)/python -m pytest --cov --cov-report=term-missing:skip-covered $(PYTEST_ARGS)

lint: $(STAMP) ## Check format, lint, types and import boundaries
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	PYTHONHASHSEED=0 $(BIN)/mypy  # joins of types may depend on it
	$(BIN)/lint-imports

format: $(STAMP) ## Format the code and apply the safe fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(STAMP) ## Run the benchmarks
	@for script in benchmarks/[!_]*.py; do $(BIN)/python "$$script" || exit 1; done

clean: ## Remove .venv, caches and build output
	rm -rf $(VENV) .cache build dist .coverage .coverage.* htmlcov
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "memqos needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(BIN)/python
	@echo "Installing memqos and its tools into $(VENV)"
	@$(PIP) install --upgrade "pip>=25.1"  # the first with --group
	@$(PIP) install -e . --group dev
	@touch $@
