# Every target sets up .venv by itself, and again after a change of the dependencies.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# A file at a time, in the order they are collected. Most of the time tests wait for hosts: more of them than processors.
PARALLEL := --numprocesses 6 --dist loadfile --no-loadscope-reorder
# Tools start one another by name: molecule, ansible-runner and the tests start ansible-playbook.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help demo test faults verdicts failures test-engines lint molecule sanity generate lock clean root

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s%s\n", $$1, $$2 }' Makefile

demo: root $(READY) ## deploy, verify, break and roll back a simulated SGLang on a local systemd host
	@$(BIN)/python -m tests.demo

test: root lint molecule ## lint, then every test that needs no real engine
	@$(BIN)/python -m pytest $(PARALLEL) tests/hosts tests/packaging tests/unit

faults: root $(READY) ## inject every fault at every step, and write docs/faults.md from the run
	@$(BIN)/python -m pytest $(PARALLEL) --fault-table docs/faults.md $(wildcard tests/hosts/test_faults*.py) tests/hosts/test_trouble.py

failures: root $(READY) ## bring about the failures of tests/failures.yml, and write docs/failures.md from the run
	@$(BIN)/python -m pytest $(PARALLEL) -m failure --failure-table docs/failures.md tests/unit tests/hosts

verdicts: root $(READY) ## judge each misbehaving engine 20 times with random timing, and write docs/verdicts.md
	@$(BIN)/python -m pytest --verdict-rounds 20 --verdict-record .cache/verdicts.jsonl --verdict-table docs/verdicts.md tests/hosts/test_verdicts.py
	@rm .cache/verdicts.jsonl

test-engines: root $(READY) ## deploy real SGLang and vLLM with tiny models on CPU
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup tests/engines

lint: $(READY) ## ruff, mypy, ansible-lint and a check of the generated files
	@$(BIN)/ruff check --quiet --output-format concise
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/python dev/generate.py --check
	@$(BIN)/python -m servewright.spec.generate --check
	@$(BIN)/ansible-lint -q

molecule: root $(READY) ## converge the scenarios of extensions/molecule on local systemd hosts
	@trap '$(BIN)/molecule destroy --all' INT TERM HUP; $(BIN)/molecule test --all

sanity: $(READY) ## ansible-test sanity over the collection as published
	@$(BIN)/python dev/sanity.py

generate: $(READY) ## write the files that are made from others
	@$(BIN)/python dev/generate.py
	@$(BIN)/python -m servewright.spec.generate

lock: $(READY) ## resolve requirements-dev.txt anew, after a change in pyproject.toml
	@$(BIN)/python dev/lock.py

clean: ## remove all that was made in this folder, .venv included
	@rm -rf .venv .ansible .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache artifacts build dist
	@rm -f servewright-llm-*.tar.gz
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

root:
	@[ "$$(id -u)" = 0 ] || { \
		echo "servewright: the test hosts are containers of this machine, so this needs root: sudo make ..." >&2; \
		exit 1; \
	}

$(READY): pyproject.toml requirements-dev.txt
	@command -v $(PYTHON) >/dev/null || { \
		echo "servewright: $(PYTHON) is missing: apt-get install -y python3-venv" >&2; exit 1; \
	}
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "servewright: $$($(PYTHON) --version) is too old, 3.11 is needed: make PYTHON=/path/to/python3.11 ..." >&2; \
		exit 1; \
	}
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "servewright: $(PYTHON) cannot make virtual environments: apt-get install -y python3-venv" >&2; exit 1; \
	}
	@echo "Setting up .venv, about a minute ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile -r requirements-dev.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
