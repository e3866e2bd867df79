# make demo       everything, on this machine: bare environment to judged hidden states
# make test       lint, unit tests, tests in the ML environment, molecule
# make test-fast  lint, and the unit tests that are no whole plays
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
PY := .venv/bin/python

.PHONY: help .venv demo test test-fast lint format unit slow host-tests molecule lock lock-controller mutations clean

help:
	@sed -n 's/^# make/make/p' Makefile

.venv:
	@tools/controller_venv.sh

demo: .venv
	@$(PY) runner.py

test: test-fast slow host-tests molecule

test-fast: lint unit

lint: .venv
	ruff check .
	ruff format --check .
	mypy
	yamllint --strict .
	$(PY) tools/role_docs.py --check
	$(PY) tools/lock_stack.py --check
	$(PY) tools/series.py lint
	ansible-lint --offline

# make format     rewrite what a formatter can
format: .venv
	ruff check --fix .
	ruff format .
	$(PY) tools/role_docs.py

unit: .venv
	$(PY) -m pytest -n auto -m "not slow"

slow: .venv
	$(PY) -m pytest -n auto -m slow

# make host-tests  the program inside the ML environment, and each patch taken back alone: real vLLM (AERIE_TEST_ENV names a
#                  patched environment; otherwise var/ml-env is made)
host-tests: .venv
	if [ -z "$${AERIE_TEST_ENV:-}" ]; then
	  $(PY) runner.py --tags provision,patch
	  export AERIE_TEST_ENV="$${AERIE_VAR:-$(CURDIR)/var}/ml-env"
	fi
	tools/host_tests.sh
	$(PY) -m pytest tests/stack

molecule: .venv
	molecule test --all

# make lock STACK=vllm-0.16-cpu   renew the lock of one stack (WHEEL=path: by the requirements of that vLLM wheel)
lock: .venv
	$(PY) tools/lock_stack.py $(STACK) --wheel "$(WHEEL)"

# make mutations   break every patch, hunk, contract and property in turn, and write what caught it (needs a provisioned environment)
mutations: .venv
	$(PY) tools/mutations.py

# make lock-controller            renew requirements.txt
lock-controller: .venv
	uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --upgrade --no-emit-index-url \
	  --no-emit-find-links --custom-compile-command "make lock-controller" requirements.in --output-file requirements.txt

# make clean      remove .venv and the caches; var/ with its environments and hidden states stays
clean:
	rm -rf .venv .venv.lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .ansible
	find . -name __pycache__ -not -path './var/*' -prune -exec rm -rf {} +
