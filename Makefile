# `make demo` and `make test` set everything up themselves; run again, they start at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
SETUP := pyproject.toml constraints.txt
# Each of the two processes takes one half of the tests, in order, so that a module's fixtures are made once;
# the one that is done first takes over half of what the other has left.
PYTEST := $(BIN)/pytest -n 2 --dist worksteal

.PHONY: demo torture test test-plain test-slow test-all lint types docs wheel wheel-check clean help

help:
	@echo "make demo        train on handwritten digits and open-set test it (about 3 minutes)"
	@echo "make test        the fast tests"
	@echo "make test-plain  the fast tests that compute, with the plainest instructions of the processor"
	@echo "make test-all    also the slow tests and the comparisons with peer libraries (test-slow: only those)"
	@echo "make torture     attack everything that is promised to hold, for an hour (docs/reliability.md)"
	@echo "make docs        the documentation site, in build/site"
	@echo "make lint        ruff;  make types: mypy --strict;  make wheel-check: build and try the wheel"

demo: $(VENV)/base
	$(BIN)/gradmix demo --out demo

test: $(VENV)/dev
	OMP_NUM_THREADS=1 $(PYTEST) -m "not slow and not oracle"

# What rounds differently on another processor must be right there too. SSE4.1 is the least that torch knows.
PLAIN := tests/losses tests/mixing tests/methods tests/models tests/views tests/attribution tests/detection \
	tests/recognition tests/training
# In these files of theirs nothing rounds: they are about memory, files, locks, clocks, names and text.
NOT_PLAIN := $(addprefix tests/detection/test_,memory.py post_hoc_memory.py) \
	$(addprefix tests/training/test_,clock.py recipe.py run_folder.py schedule.py) \
	$(addprefix tests/recognition/test_,class_names.py model_update.py) tests/models/test_clip_tokens.py
test-plain: $(VENV)/dev
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=1 \
		$(PYTEST) -m "not slow and not oracle" $(PLAIN) $(addprefix --ignore=,$(NOT_PLAIN))

test-slow: $(VENV)/dev
	OMP_NUM_THREADS=1 $(PYTEST) -m "slow or oracle" tests

test-all: test test-slow

MINUTES ?= 60
SEED ?= 1
torture: $(VENV)/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture --minutes $(MINUTES) --seed $(SEED) 2>torture.log

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev
	$(BIN)/mypy

docs: $(VENV)/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: $(VENV)/dev
	rm -rf dist && $(BIN)/python -m build --wheel --outdir dist

# The wheel in an empty environment, away from the sources: is everything in it that it needs?
wheel-check: wheel
	rm -rf $(VENV)-wheel && $(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/gradmix-*.whl
	cd $(VENV)-wheel && bin/gradmix demo --out demo --max-steps 20 && test -s demo/report.html
	rm -rf $(VENV)-wheel

$(VENV)/python:
	@echo "setting up $(VENV): a few minutes, once"
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/base: $(VENV)/python $(SETUP)
	$(PIP) -e '.[pretrained]'
	touch $@

$(VENV)/dev: $(VENV)/base
	$(PIP) -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-wheel dist build demo
