# make demo   everything from nothing: set-up, then the quick keyword-spotting run on the virtual twins
# make test   the same set-up with the test extras, then lint, types and the whole test suite
# Both are idempotent: the second time the set-up is skipped.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# program that must be on PATH : Debian package that brings it
SYSTEM := arm-none-eabi-gcc:gcc-arm-none-eabi \
          qemu-system-arm:qemu-system-arm \
          espeak-ng:espeak-ng \
          gcc:gcc

unit: SYSTEM += openocd:openocd # its board files are parsed by the real one
unit: SYSTEM += chromium:chromium # opens the reports

.PHONY: demo test lint types unit setup system clean help

help:
	@sed -n 's/^# //p' Makefile | head -3

demo: $(BIN)/.installed system
	$(BIN)/pipeline run kws_dscnn_s --quick

test: lint types unit

lint: $(BIN)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(BIN)/.installed-dev
	$(BIN)/mypy

# PASSIVE: OpenMP's threads sleep while they wait, instead of taking the cores from the other workers.
unit: $(BIN)/.installed-dev system
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest --numprocesses=logical --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

setup: $(BIN)/.installed-dev system

# newlib and libc6-dev bring no program of their own, so the compilers are asked for their headers.
system:
	@packages=""; \
	for pair in $(SYSTEM); do \
	  command -v "$${pair%%:*}" >/dev/null || packages="$$packages $${pair##*:}"; \
	done; \
	arm-none-eabi-gcc -E -include string.h -x c /dev/null >/dev/null 2>&1 || packages="$$packages libnewlib-arm-none-eabi"; \
	gcc -E -include stdio.h -x c /dev/null >/dev/null 2>&1 || packages="$$packages libc6-dev"; \
	[ -z "$$packages" ] && exit 0; \
	if ! command -v apt-get >/dev/null; then \
	  echo "missing:$$packages (Debian names); install them with your system's package manager, then run make again" >&2; exit 1; \
	elif [ "$$(id -u)" = 0 ]; then sudo=""; \
	elif sudo -n true 2>/dev/null; then sudo=sudo; \
	else \
	  echo "missing:$$packages; needs root: sudo apt-get install --no-install-recommends$$packages, then run make again" >&2; exit 1; \
	fi; \
	echo "installing:$$packages"; \
	$$sudo apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends $$packages

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV) || { \
	  rm -rf $(VENV); \
	  [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); } || { \
	  echo "cannot make a virtual environment; install it: sudo apt-get install python3-venv, then run make again" >&2; exit 1; }

$(BIN)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(BIN)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@ $(BIN)/.installed

clean:
	rm -rf $(VENV) .pipeline runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
