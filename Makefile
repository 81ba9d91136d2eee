# The first Python 3.11 or later that can make virtual environments.
PYTHON ?= $(shell for p in /usr/bin/python3.11 python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
RUN := $(VENV)/bin/python
# Further arguments for pytest: make test PYTEST="-m 'not slow' tests/unit"
PYTEST ?=
# How many test processes at once; the tests of one file stay in one of them.
WORKERS ?= 2
COVERAGE ?=

.PHONY: demo test lint bench dev clean

demo: $(VENV)/.installed
	$(RUN) -P -m roost.actors.client.demo

test: $(VENV)/.installed-dev
ifeq ($(COVERAGE),)
	$(RUN) -m pytest -n $(WORKERS) --dist loadfile $(PYTEST) </dev/null
else
	rm -f .coverage .coverage.*
	$(RUN) -m coverage run -m pytest -n $(WORKERS) --dist loadfile $(PYTEST) </dev/null
	$(RUN) -m coverage combine --quiet
	$(RUN) -m coverage report --skip-covered --skip-empty --sort=cover
endif

lint: $(VENV)/.installed-dev roost
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	PYTHONPATH=. $(VENV)/bin/lint-imports
	$(VENV)/bin/mypy
	$(VENV)/bin/pyright

bench: $(VENV)/.installed-dev
	$(RUN) -P bench/run.py

dev: $(VENV)/.installed-dev

clean:
	rm -rf $(VENV) roost build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.*

roost:
	.ci/links

$(VENV)/.environment:
	@test -n "$(PYTHON)" || { echo "roost needs Python 3.11 or later with venv (Debian: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.environment
	PYTHONWARNINGS=ignore $(RUN) -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.installed
	$(RUN) -m pip install --quiet --disable-pip-version-check --group dev
	@touch $@
