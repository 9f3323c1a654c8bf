# make demo: a comparison of methods on real data. make test: lint, types and tests.
# make fast: the tests alone.
# make slow: the tests of killed runs, several devices and processes, and long ones.
# TESTS=tests/runs/test_leaks.py: of the fast or the slow ones those of these files.
# make docs: the guides and the API reference, as pages in site/.
# make devices: docs/devices_laws.md, selections, channels and clocks with every family.
VENV ?= .venv
TESTS = tests
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PINS := $(wildcard .ci/constraints-$(VERSION).txt)
# uv installs in a quarter of pip's time.
INSTALL = $(VENV)/bin/uv pip install --quiet --python $(VENV)/bin/python $(PINS:%=-c %)

.PHONY: demo test fast slow docs devices table clean

demo: $(VENV)/installed
	$(VENV)/bin/python experiments/digits.py

test: $(VENV)/tested
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python
	$(VENV)/bin/lint-imports --no-logo --no-cache
	$(MAKE) fast

fast: $(VENV)/tested
	$(VENV)/bin/pytest -n 2 --dist worksteal -m "not slow" $(TESTS)

slow: $(VENV)/tested
	$(VENV)/bin/pytest -n 2 --dist worksteal -m slow $(TESTS)

# Not --quiet: a warning that is not shown would not fail the build.
docs: $(VENV)/documented
	NO_MKDOCS_2_WARNING=true $(VENV)/bin/python -m mkdocs build --strict --config-file .ci/mkdocs.yml

devices: $(VENV)/tested
	PYTHONPATH=tests $(VENV)/bin/python -m devices_laws > devices_laws.tmp
	mv devices_laws.tmp docs/devices_laws.md

table: $(VENV)/installed
	$(VENV)/bin/python tests/method_table.py

$(VENV)/installed: pyproject.toml $(PINS)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(INSTALL) -e .
	touch $@

$(VENV)/tested: $(VENV)/installed
	$(INSTALL) -e '.[test]'
	touch $@

$(VENV)/documented: $(VENV)/installed
	$(INSTALL) -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) site
