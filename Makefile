# `make` alone lists the targets. Everything that runs prepares .venv and Java first (tools/setup.sh).
.DEFAULT_GOAL := help
.PHONY: help setup demo test lab bench faults explore lint format lock clean
PY := .venv/bin/python

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup:  ## prepare .venv and Java; quiet when all is there
	@tools/setup.sh

demo: setup  ## run the quickstart notebook on real flights, print one JSON line
	@$(PY) -m workbench demo

test: lint  ## lint, then every test but the fault sweep and the browser
	@$(PY) -m pytest

lab: setup  ## open JupyterLab on the notebooks
	@$(PY) -m jupyterlab $$([ "$$(id -u)" = 0 ] && echo --allow-root) --ServerApp.ip=127.0.0.1 --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks \
	  --LabApp.news_url= $(LAB)

bench: setup  ## measure; prints a table, writes var/bench/results.json
	@$(PY) -m tests.benchmarks

faults: setup  ## kill a run at many moments and compare what it leaves
	@$(PY) -m pytest tests/faults -m faults

explore: setup  ## the property-based tests with examples that nobody has seen yet
	@$(PY) -m pytest tests/unit tests/properties --hypothesis-profile=explore

lint: setup  ## formatting, lint rules and types
	@$(PY) -m ruff format --check --quiet .
	@$(PY) -m ruff check --quiet .
	@$(PY) -m mypy --strict workbench widgets datasets

format: setup  ## rewrite what lint would complain about
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

lock:  ## write requirements.lock anew from pyproject.toml
	@tools/lock.sh

clean:  ## remove .venv, var and caches
	rm -rf .venv var .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
