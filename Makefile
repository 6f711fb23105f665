# One command for each job; `make help` lists them. Every target sets up what it needs in .venv.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# cpu installs the tested versions. Any other value, such as cu130, is only a label for pip's own choice of torch.
TORCH ?= cpu
VENV ?= .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed-$(TORCH)
CHECKED := platform/paceline deployments/paceline_serve tests
TYPED := platform/paceline deployments/paceline_serve
# Requests and seed of `make soak`.
N ?= 2000
SEED ?= 0
# Extra arguments, as in `make serve ARGS="disaggregated --http-port 8080"` or `make test ARGS="tests/unit -x"`.
ARGS ?=

export PACELINE_DATA ?= $(abspath ../shared/data)
export RAY_USAGE_STATS_ENABLED := 0
export PATH := $(abspath $(VENV)/bin):$(PATH)

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

.PHONY: setup
setup: $(STAMP) ## Make .venv and install everything; TORCH=cpu (default), or any label for pip's own choice of torch

$(STAMP): pyproject.toml constraints-cpu.txt
	@set -eu; \
	if [ ! -x $(PYTHON) ]; then \
	  found=""; \
	  for candidate in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	    if $$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      found=$$candidate; break; \
	    fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "Paceline needs Python 3.11 or newer with the venv module (on Debian: python3-venv)." >&2; exit 1; \
	  fi; \
	  echo "making $(VENV) with $$($$found --version)"; \
	  $$found -m venv $(VENV); \
	fi; \
	constraints=constraints-cpu.txt; \
	if [ "$(TORCH)" != cpu ]; then \
	  constraints=$(VENV)/constraints.txt; \
	  grep -v '^torch==' constraints-cpu.txt > $$constraints; \
	fi; \
	for stamp in $(VENV)/.installed-*; do \
	  if [ -e "$$stamp" ] && [ "$$stamp" != "$@" ]; then \
	    echo "removing torch, which was installed for TORCH=$${stamp##*.installed-}"; \
	    $(PYTHON) -m pip uninstall --quiet --yes torch; \
	  fi; \
	done; \
	echo "installing the packages; the first time takes some minutes"; \
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c $$constraints -e '.[dev]'; \
	$(PYTHON) -c 'import torch; print(f"torch {torch.__version__}, CUDA: {torch.version.cuda}")'; \
	rm -f $(VENV)/.installed-*; \
	touch $@

.PHONY: demo
demo: setup ## Start Paceline, chat with speculation off and on, compare, and stop it again
	paceline demo $(ARGS)

.PHONY: serve
serve: setup ## Run Paceline until Ctrl-C: REST on port 8000, gRPC on port 9000
	paceline serve $(ARGS)

.PHONY: model
model: setup
	@paceline models fetch smollm2-135m

.PHONY: test
test: setup model ## Run the tests: side by side on the cores that there are, then those that start a fleet
ifeq ($(strip $(ARGS)),)
	$(PYTHON) -m pytest -m "not full" --ignore=tests/serve --numprocesses=auto --dist=loadfile
	$(PYTHON) -m pytest -m "not full" tests/serve
else
	$(PYTHON) -m pytest -m "not full" $(ARGS)
endif

.PHONY: test-full
test-full: setup model ## Run the tests in their long form too
	$(PYTHON) -m pytest $(ARGS)

.PHONY: soak
soak: setup ## Mixed requests on a fleet with injected faults: N=20000, SEED=0, MODEL=smollm2-135m
	PYTHONPATH=tests:tests/fixtures $(PYTHON) -m soak -n $(N) --seed $(SEED) $(if $(MODEL),--model $(MODEL)) $(ARGS)

.PHONY: bench-micro
bench-micro: setup ## Time the parts of a step; SAVE=FILE keeps the figures, COMPARE=FILE sets them beside older ones
	$(PYTHON) -m pytest tests/benchmarks --benchmark-enable --benchmark-columns=min,median,iqr,rounds \
	  $(if $(SAVE),--benchmark-json=$(SAVE)) $(if $(COMPARE),--benchmark-compare=$(COMPARE)) $(ARGS)

.PHONY: bench-gpu
bench-gpu: setup ## Measure the library alone on a GPU, with random weights of Llama-8B shape: under 10 minutes
	paceline bench gpu $(ARGS)

.PHONY: check
check: setup ## Lint, format, types, layers, protos and generated files
	ruff check .
	ruff format --check .
	mypy --strict $(TYPED)
	lint-imports --no-cache
	buf lint
	buf format --diff --exit-code
	$(PYTHON) -m pytest tests/repo/test_protos.py tests/repo/test_reference.py

.PHONY: format
format: setup ## Format code and protos and mend what the linter can
	ruff check --fix .
	ruff format .
	buf format --write

.PHONY: protos
protos: setup ## Generate platform/paceline/v1 from protos/
	$(PYTHON) -m grpc_tools.protoc --proto_path=protos \
	  --python_out=platform --pyi_out=platform --grpc_python_out=platform protos/paceline/v1/*.proto

.PHONY: docs
docs: setup ## Generate docs/reference from the config schema and the metric catalogue
	$(PYTHON) -m paceline.cli.reference docs/reference

.PHONY: clean
clean: ## Remove .venv, caches and build outputs
	rm -rf $(VENV) build dist .pytest_cache .benchmarks .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
