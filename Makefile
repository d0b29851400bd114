# Every command of the project. Each sets up what it needs the first time; see docs/development.md.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: demo test e2e check format bench lock protos reference clean

demo: $(VENV)/.runtime
	@$(BIN)/python -m gas.sandbox $(ARGS)

test: $(VENV)/.dev
	@$(BIN)/python -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile $(ARGS)

e2e: $(VENV)/.dev
	@tests/e2e/set-up.sh
	@$(BIN)/python -m pytest $(if $(findstring tests/e2e/,$(ARGS)),,tests/e2e) $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	@$(BIN)/python -m benchmarks $(ARGS)

# Resolve the dependencies of pyproject.toml anew, for every supported Python, with hashes.
lock: $(VENV)/.dev
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade \
	    --extra sandbox --extra tools --group build --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade \
	    --extra tools --constraint requirements.lock --output-file requirements-image.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade \
	    --group dev --constraint requirements.lock --output-file requirements-dev.lock

# Write docs/reference.md anew from the code.
reference: $(VENV)/.runtime
	@$(BIN)/python -m scripts.reference

# Generate the code of kubelet's gRPC interfaces anew from its proto files, which lie beside it.
protos: $(VENV)/.dev
	$(BIN)/python -m scripts.kubelet_api

# A stamp is written only after everything before it worked, so an interrupted set-up starts again.
$(VENV)/.runtime: requirements.lock pyproject.toml
	@echo "setting up $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "gas needs Python 3.11 or later; found " + sys.version.split()[0] + ". Name one: make PYTHON=python3.12 …")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
