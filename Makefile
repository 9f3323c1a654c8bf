# make demo: a comparison of methods on real data. make test: lint, types and tests.
# make slow: the tests of killed runs, several devices and processes, and long ones.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PINS := $(wildcard .ci/constraints-$(VERSION).txt)
PIP := .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check $(PINS:%=-c %)

.PHONY: demo test slow table clean

demo: .venv/installed
	.venv/bin/python experiments/digits.py

test: .venv/tested
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright --pythonpath .venv/bin/python
	.venv/bin/lint-imports --no-logo --no-cache
	.venv/bin/pytest -n 2 --dist worksteal -m "not slow"

slow: .venv/tested
	.venv/bin/pytest -n 2 --dist worksteal -m slow

table: .venv/installed
	.venv/bin/pfljax list algorithms --markdown

.venv/installed: pyproject.toml $(PINS)
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $@

.venv/tested: .venv/installed
	$(PIP) -e '.[test]'
	touch $@

clean:
	rm -rf .venv
