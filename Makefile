# Everything from a fresh checkout: `make run`, `make test`. Needs Python 3.11+, make, git and a C compiler.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
MINUTES ?= 60
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt

.PHONY: help setup run serve docs dist screenshots test test-next torture lint bench tables clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-11s %s\n", $$1, $$2 }'

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV) (a minute or two the first time) ..."
	@$(PIP) -e '.[report]'
	@touch $@

$(VENV)/.web: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what the page needs ..."
	@$(PIP) -e '.[web]'
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what the documentation needs ..."
	@$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "Installing the test tools ..."
	@$(PIP) -e '.[dev]'
	@touch $@

setup: $(VENV)/.dev ## Install everything into .venv

run: $(VENV)/.run ## See it in five minutes: two images aligned, three networks trained and compared, a report
	@$(BIN)/caunet demo --out runs/demo

serve: $(VENV)/.web ## Open the page on this machine: http://127.0.0.1:8000
	@$(BIN)/caunet serve --open

docs: $(VENV)/.docs ## Build the documentation, with every warning an error: build/site/index.html
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/python -m mkdocs build -q --strict
	@echo "build/site/index.html"

dist: $(VENV)/.dev ## Build and check wheel and sdist: dist/
	@$(BIN)/python -m tools.dist

screenshots: $(VENV)/.dev ## Take pictures of the page (needs Chromium): docs/figures/page-*.png
	@$(BIN)/python -m tools.screenshots docs/figures

test: $(VENV)/.dev ## Lint, types and the whole test suite
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile --cov --cov-report=term
	@$(BIN)/coverage report --fail-under=95 --include='src/caunet/functional.py,src/caunet/low_rank.py,src/caunet/nn/*,src/caunet/optim/*'

test-next: ## Test with the newest torch, in an environment of its own: .venv-next (gigabytes; tells whether the bound can move)
	@test -x .venv-next/bin/python || $(PYTHON) -m venv .venv-next
	@grep -v '^torch==' constraints.txt > .venv-next/constraints.txt
	@.venv-next/bin/python -m pip install -q -c .venv-next/constraints.txt -e '.[dev]'
	@.venv-next/bin/python -m pip install -q --upgrade torch
	@OMP_NUM_THREADS=1 .venv-next/bin/python -m pytest -q -n 2 --dist loadfile

torture: $(VENV)/.dev ## The long attacks: 10,000 damaged files of each format, kills, soak (MINUTES=60); docs/security.md
	@$(BIN)/python -m benchmarks.torture --minutes $(MINUTES) --keep

lint: $(VENV)/.dev ## Fix what ruff can fix, then check types
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/mypy

bench: $(VENV)/.dev ## Measure speed side by side and save benchmarks/results/*.json
	@$(BIN)/python -m benchmarks.update
	@$(BIN)/python -m benchmarks.pairs
	@$(BIN)/python -m benchmarks.training

tables: $(VENV)/.run ## Fill the tables of docs/ from what is committed
	@$(BIN)/python -m caunet.reproduction.tables
	@$(BIN)/python -m benchmarks.readme
	@$(BIN)/python -m benchmarks.space tables
	@$(BIN)/python -m benchmarks.volumes tables
	@$(BIN)/python -m benchmarks.perspective tables

clean: ## Remove the environment and caches (results and runs stay)
	rm -rf $(VENV) .venv-next .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
