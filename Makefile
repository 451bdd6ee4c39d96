# Everything here works on a fresh machine: each target sets up what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
# Files of tests that run at once. Unit tests wait longer than they compute, so there is room for one more than cores;
# the others hold processes against a clock, and disturb each other sooner.
WORKERS ?= 2
UNIT_WORKERS ?= 3
MINUTES ?= 10
SEEDS ?= 10000
WRITE ?= 1
# Directories whose tests need more than Python: a real vLLM, real Prometheus tools, root's rights, or minutes of quiet.
APART := tests/real tests/e2e tests/bench tests/hostile tests/sandbox tests/foreign
# Directories whose tests need nothing but Python, but for those that are marked `apart`.
PURE := tests/analysis tests/contract tests/core tests/doctor tests/export tests/report tests/settings tests/story tests/wire

.PHONY: help lock demo pure test lint format reference unit e2e sandbox real truth bench bench-smoke hostile foreign foreign-nginx soak sensitivity simulate autoscaling tools wheel clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(INSTALLED) ## simulated vLLM, sidecar and traffic; no GPU needed
	$(BIN)/prefillwatch demo

pure: $(READY) ## parsers, analysis, metrics, doctor, settings: no process, no socket, no waiting (half a minute)
	$(BIN)/pytest -p tests.kit.pure -m "not apart" $(PURE) --numprocesses=$(WORKERS) --dist=worksteal $(ARGS)

test: lint unit ## lint, type check, unit and socket tests (under 8 minutes on two cores)

lint: $(READY) ## ruff, mypy, and who may import whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.13 exporter/prefillwatch
	! $(BIN)/python -c "import grafana_foundation_sdk" 2>/dev/null || $(BIN)/mypy --python-version 3.12 grafana
	$(BIN)/lint-imports --no-logo

format: $(READY) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

reference: $(READY) ## write the tables of docs/ that are made from the code anew
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/security_tables.py

unit: $(READY) tools
	$(BIN)/pytest $(APART:%=--ignore=%) --numprocesses=$(UNIT_WORKERS) --dist=loadfile $(ARGS)

# These tests wait far more than they compute, so that files of them can run side by side.
e2e: $(READY) tools ## the whole sidecar in front of the simulated vLLM, and its page in a browser
	@scripts/tools chromium
	$(BIN)/pytest tests/e2e --numprocesses=$(WORKERS) --dist=loadfile $(ARGS)

sandbox: $(READY) ## the whole sidecar under the confinement of the shipped unit and pod (as root)
	@scripts/tools systemd-analyze ip sysctl nsenter buildah podman runc mmdebstrap
	scripts/environment $(PYTHON) $(VENV) --group dev --group sandbox
	$(BIN)/pytest tests/sandbox $(ARGS)

real: $(READY) ## a real vLLM and llama.cpp on the CPU (downloads about 1 GB the first time)
	$(PYTHON) tests/real/setup.py
	$(BIN)/pytest tests/real --ignore=tests/real/truth $(ARGS)

truth: $(READY) ## verdicts held against a real engine's own step log (minutes; wants a quiet machine)
	$(PYTHON) tests/real/setup.py
	$(BIN)/pytest tests/real/truth $(ARGS)

bench: $(READY) ## the relay against other proxies, in one run (needs gcc, nginx, haproxy)
	$(BIN)/python -m tests.bench

bench-smoke: $(READY) ## does the benchmark still work?
	scripts/tools gcc nginx
	$(BIN)/python -m tests.bench --smoke

hostile: $(READY) ## attacks on a running sidecar with a stream beside it, judged by what they cost (under 4 minutes)
	$(BIN)/pytest tests/hostile $(ARGS)

foreign: $(READY) ## other people's HTTP suites, arrivals and traces; they lie in ../shared/foreign or where PWTEST_FOREIGN says (under 6 minutes)
	@scripts/tools nginx lighttpd apache2 node
	scripts/environment $(PYTHON) $(VENV) --group dev --group foreign
	$(BIN)/pytest tests/foreign --numprocesses=$(WORKERS) $(ARGS)

foreign-nginx: $(READY) ## nginx's own tests with the relay before nginx; PWTEST_NGINX_TESTS says where they lie (half an hour)
	@scripts/tools nginx perl
	$(BIN)/python -m tests.foreign.http.nginx_suite $(or $(PWTEST_NGINX_TESTS),nginx-tests) $(ARGS)

soak: $(READY) ## minutes of load and faults, every process ended in turn: make soak MINUTES=10
	@scripts/tools gcc mount
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(ARGS)

sensitivity: $(READY) ## each tunable of the method moved by 30 %: what real recordings make of it
	$(BIN)/python -m tests.sensitivity $(ARGS)

simulate: $(READY) ## verdicts judged by simulated engines that know the truth, written to docs/: make simulate SEEDS=10000 [WRITE=]
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(if $(WRITE),--write) $(ARGS)

autoscaling: $(READY) ## laws of autoscaling compared on simulated fleets and recorded arrivals, written to docs/ (minutes)
	$(BIN)/python -m tests.autoscaling --write $(ARGS)

lock: ## pin the image's packages anew, with hashes, from pyproject.toml
	scripts/lock $(PYTHON)

tools:
	@scripts/tools promtool systemd-analyze

wheel: $(READY) ## build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## remove environments, caches and builds
	rm -rf $(VENV) .venv-real .cache .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml scripts/environment
	scripts/environment $(PYTHON) $(VENV)
	@touch $@

$(READY): $(INSTALLED)
	scripts/environment $(PYTHON) $(VENV) --group dev
	@touch $@
