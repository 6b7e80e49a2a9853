# Needs Python 3.11 or newer, make and a C compiler; everything else goes into .venv.
#
#   make demo        EMU beside QPLEX, five seeds each: who is ahead, demo/curves.png, demo/team.gif (three minutes)
#   make test        all tests but the slow ones       make test-slow   the slow ones
#   make lint        ruff, pyright, rooms              make bench       the speed of training, part by part
#   make docs        this documentation as a site, in site/
#   make notebook    run the notebook of the examples
#   make docker      a container image for CPUs, where an engine is running
#   make football    Google Research Football, built from source (minutes the first time; needs root or some packages)
#   make clean       remove .venv and what the commands above left

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

.PHONY: demo test test-slow lint bench docs docker notebook football install install-dev clean

demo: install
	$(BIN)/emu demo

# A test that hangs ends after a quarter of an hour, with the stack of every thread.
test: install-dev
	$(PYTEST) -m "not slow" --timeout 900 $(ARGS)

test-slow: install-dev
	$(PYTEST) -m slow $(ARGS)

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: install
	$(BIN)/python benchmarks/train_speed.py $(ARGS)

# Not --quiet: mkdocs would then count no warnings, and a broken link would pass.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

notebook: install-dev
	$(BIN)/python -m pytest --nbmake examples/first_steps.ipynb

docker:
	@if docker info > /dev/null 2>&1; then docker build -t emu .; \
		else echo "no container engine is running here: nothing was built"; fi

football: install
	scripts/football.sh $(BIN)/python

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "EMU needs Python 3.11 or newer; say which with: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The stamps make a second call fast; a change of either file installs again.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing EMU into $(VENV) (a minute or two the first time)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing EMU and its test tools into $(VENV) (a minute or two the first time)"
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing the documentation's tools into $(VENV)"
	@$(PIP) -e '.[docs]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist demo site src/*.egg-info .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
