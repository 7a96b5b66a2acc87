# `make` lists the targets; `make run` and `make test` set up everything that they need in .venv.
PYTHON ?= python3
VENV   ?= .venv
WORKERS ?= auto
EXAMPLES ?= 2000
BIN    := $(VENV)/bin
PARALLEL := -n $(WORKERS) --dist load --maxschedchunk 1
COMPILE := uv pip compile -q --universal --generate-hashes --no-header --python-version 3.11 pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help run test properties test-install check lint lint-workflows format proto schema lock bench worlds clean docs wheel image kind-up kind-down e2e

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.run: requirements/run.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit("vdev needs Python 3.11 or newer: make PYTHON=python3.12 …" if sys.version_info < (3, 11) else 0)'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/run.txt
	@touch $@

$(VENV)/.test: requirements/test.txt $(VENV)/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/test.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

run: $(VENV)/.run ## run the demo: plugin and embedded kubelet, a story of a few seconds
	@$(BIN)/python -m vdev demo

test properties test-install: export PYTHONDONTWRITEBYTECODE := # empty: the tests start some hundred processes, and each would compile all modules
test: $(VENV)/.test ## run the tests, in four workers per processor (WORKERS=0: in one process)
	$(BIN)/python -m pytest -q $(PARALLEL)

properties: $(VENV)/.test ## the tests with properties, with EXAMPLES (2000) for each
	VDEV_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -q $(PARALLEL) -m hypothesis --timeout 3600

test-install: $(VENV)/.test ## the image's recipe without an engine: installs the locked packages, and what comes out runs
	$(BIN)/python -m pytest -q -m install --install tests/deploy

check: lint test test-install ## everything that CI checks

lint: $(VENV)/.dev lint-workflows ## ruff, mypy, import contracts, workflows, generated files up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python proto/generate.py --check
	$(BIN)/python -m vdev schema | diff -u configs/vdev.schema.json - || { echo 'configs/vdev.schema.json is stale: run make schema'; exit 1; }

	.ci/version --check

# Installing actionlint downloads its program from GitHub, so it is installed there only; elsewhere it runs if it is there.
lint-workflows: $(VENV)/.dev ## the workflows and the action: zizmor, and actionlint if it is installed (requirements/workflows.txt)
	$(BIN)/zizmor --offline --quiet --no-progress .github action.yml
	@test -z "$$GITHUB_ACTIONS" || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/workflows.txt
	@test ! -x $(BIN)/actionlint || $(BIN)/actionlint

format: $(VENV)/.dev ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: $(VENV)/.dev ## generate vdev/pb from proto/
	$(BIN)/python proto/generate.py

schema: $(VENV)/.run ## write configs/vdev.schema.json
	$(BIN)/python -m vdev schema > configs/vdev.schema.json

lock: ## compile requirements/*.txt from pyproject.toml (needs uv)
	$(COMPILE) --group dev -o requirements/dev.txt
	$(COMPILE) --group test -c requirements/dev.txt -o requirements/test.txt
	$(COMPILE) -c requirements/dev.txt -o requirements/run.txt
	$(filter-out pyproject.toml,$(COMPILE)) --group build -c requirements/dev.txt -o requirements/build.txt
	$(filter-out pyproject.toml,$(COMPILE)) --group publish -c requirements/dev.txt -o requirements/publish.txt
	$(filter-out pyproject.toml,$(COMPILE)) --group workflows -c requirements/dev.txt -o requirements/workflows.txt

ifeq (bench,$(firstword $(MAKECMDGOALS))) # `make bench fleet`: what follows are groups of rows and no targets
GROUPS := $(wordlist 2,99,$(MAKECMDGOALS))
ifneq (,$(GROUPS))
.PHONY: $(GROUPS)
$(GROUPS): ; @:
endif
endif
bench: $(VENV)/.test ## measure the budgets (make bench fleet: that group alone)
	$(BIN)/python -m bench $(GROUPS)

worlds: $(VENV)/.run ## play simulated nodes: MINUTES=2, SEED=7, WORKERS=2, LENGTH=1, EVENTS=file (docs/developers/worlds.md)
	$(BIN)/python -m tests.worlds $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(filter-out auto,$(WORKERS)),--workers $(WORKERS)) $(if $(LENGTH),--length $(LENGTH)) $(if $(EVENTS),--events $(EVENTS))

docs: $(VENV)/.run ## write what docs/ has from the code: docs/reference and docs/metrics.md
	PYTHONPATH=. $(BIN)/python docs/generate.py

wheel: ## build the wheel into dist/, install it into a fresh environment and try it
	WHEEL_DIR=$(CURDIR)/dist .ci/wheel $(PYTHON)

image: ## build the image vdev:dev (needs Docker)
	docker build --tag vdev:dev --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null) .

kind-up: ## a kind cluster whose nodes have devices (needs Docker, kind, kubectl)
	deploy/kind/up.sh

kind-down: ## delete that cluster
	deploy/kind/down.sh

e2e: $(VENV)/.test kind-up ## the end-to-end tests on that cluster
	$(BIN)/python -m pytest tests/e2e -q --context kind-$${CLUSTER:-vdev} \
	  --kubelet-restart-command 'docker exec {node} systemctl restart kubelet' \
	  --kubelet-stop-command 'docker exec {node} systemctl stop kubelet'

clean: ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
