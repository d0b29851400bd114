# Every command of the project. Each sets up what it needs when it runs for the first time; see docs/development.md.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

# For `make image` and `make release`.
IMAGE ?= gas:0.1.0
REGISTRY ?= registry.example
URL ?= https://$(REGISTRY)/kubectl-gas.tar.gz

.PHONY: build image release demo test e2e soak check format bench simulate mutants lock audit protos reference manifest picture screenshots clean

demo: $(VENV)/.runtime
	@$(BIN)/python -m sandbox $(ARGS)

# Tests start the programs more than a hundred times, so compiled modules are kept, whatever the environment says.
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.dev
	@$(BIN)/python -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile $(ARGS)

# Against the newest release of Kubernetes in tests/e2e/components; `make e2e KUBERNETES=1.35` chooses another. The tests
# mostly wait for programs, so two processes, each with a cluster of its own, need little more than half the time of one.
# Without a new order, files with one long test are not the last ones.
e2e: $(VENV)/.dev
	@tests/e2e/set-up.sh
	@$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder $(if $(findstring tests/e2e/,$(ARGS)),,tests/e2e) $(ARGS)

# Hours of pods and faults on a real control plane: `make soak ARGS="8 --seed 2"`; see docs/development.md.
soak: $(VENV)/.dev
	@tests/e2e/set-up.sh
	@$(BIN)/python -m tests.e2e.soak $(ARGS)

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

# Seeded histories of the whole system in virtual time; see docs/simulation.md.
simulate: $(VENV)/.dev
	@$(BIN)/python -m simulation $(ARGS)

# Change the code in small ways, and show which changes the fast tests do not find; see docs/development.md.
mutants: $(VENV)/.dev
	@$(BIN)/python -u -m scripts.mutants $(ARGS)

# Resolve the dependencies of pyproject.toml again, with hashes, for every supported Python.
lock: $(VENV)/.dev
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade \
	    --extra sandbox --group build --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade \
	    --constraint requirements.lock --output-file requirements-image.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade \
	    --group dev --constraint requirements.lock --output-file requirements-dev.lock

# Look the locked dependencies up in PyPI's advisories; a package that cannot be looked up fails as well.
audit: $(VENV)/.dev
	@$(BIN)/uv tool run pip-audit==2.10.1 --strict --require-hashes --disable-pip --progress-spinner=off \
	    --requirement=requirements.lock --requirement=requirements-image.lock --requirement=requirements-dev.lock $(ARGS)

# Write docs/reference.md from the code.
reference: $(VENV)/.runtime
	@$(BIN)/python -m scripts.reference

# Run the demo and draw the run as docs/demo.svg.
picture: $(VENV)/.runtime
	@$(BIN)/python -m sandbox --svg docs/demo.svg

# Take the pictures in docs/page with Debian's Chromium.
screenshots: $(VENV)/.dev
	@$(BIN)/python -m scripts.screenshots

# Write deploy/gas.yaml, the one file to apply, from the overlay `both`.
manifest: $(VENV)/.runtime
	@$(BIN)/python -m scripts.manifest

# Build the wheel, in dist/.
build: $(VENV)/.runtime
	@$(BIN)/python -m pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir dist .

# Build the image with buildah, podman or docker. TO=push pushes it to the registry in IMAGE, TO=load imports it into the
# containerd of this machine, and TO=gas.tar writes an archive.
image:
	@$(PYTHON) -m scripts.image $(IMAGE) $(TO)

# Write image with its bill of materials, chart, wheel and what krew needs into dist/release. Nothing is pushed.
release: $(VENV)/.runtime
	@rm -rf dist/release
	@$(BIN)/python -m scripts.release $(REGISTRY) $(URL) dist/release

# Generate the code of kubelet's gRPC interfaces from the proto files beside it.
protos: $(VENV)/.dev
	$(BIN)/python -m scripts.kubelet_api

# Two calls of make at the same time wait for each other here.
$(VENV)/.runtime: requirements.lock pyproject.toml
	@$(PYTHON) scripts/set_up.py $(VENV) runtime

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	@$(BIN)/python scripts/set_up.py $(VENV) dev

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
