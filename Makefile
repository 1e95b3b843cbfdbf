# `make run` and `make test` do all the set-up themselves; they need Python 3.11 or newer.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
MEASURED = $(shell grep -rl --include='test_*.py' 'mark\.measured' tests)
FAULTS := $(or $(KILLS),100)
LEASES := $(or $(KILLS),1000)
KILLS ?= 2000

# Without compiled files each of the processes that tests start would compile the program.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test thorough quick screens fuzz check format campaign leases conformance siege simulate cron bench crashpoints mutants constraints man audit house targets docs clean
.DEFAULT_GOAL := help

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

# In a process group of its own: Ctrl-C is for the agent, which ends well, and not for make.
run: .venv/for-running ## start the agent with the example workflows
	@set -m 2>/dev/null; AGENT_WORKFLOWS__DIRECTORY=examples $(BIN)/agent up --run examples/hello.yaml

# Tests wait more than they compute: five at a time keep two cores busy. What measures time runs in
# a second run, with nothing beside it. Both runs always happen and each prints its closing line; the
# status is bad if either failed. A run that finds no test (5) is fine only where ARGS chose some.
test: .venv/for-tests ## run all tests, on SQLite and on a PostgreSQL of its own
	@well() { test $$1 -eq 0 || { test -n "$(ARGS)" && test $$1 -eq 5; }; }; \
	$(PYTEST) -n 5 --dist worksteal -m "not measured" $(ARGS); first=$$?; \
	$(PYTEST) -n 0 -m measured $(or $(ARGS),$(MEASURED)); second=$$?; \
	well $$first && well $$second

# See tests/support/effort.py.
thorough: ## the same tests, with every campaign of them in its full form
	@AGENT_TEST_EFFORT=thorough $(MAKE) --no-print-directory test

# A change of many modules, or none that can be told: the fast core alone. See tests/quick.py.
quick: check ## lint, types and the tests near what changed, in under a minute
	@$(BIN)/python -m tests.quick

screens: .venv/for-tests ## write pictures of every page to build/screens; needs chromium
	@$(BIN)/python -m tests.screens $(ARGS)

fuzz: .venv/for-fuzzing ## bad input for everything that reads foreign words, then for the HTTP API
	@$(BIN)/python -m tests.bad_input.fuzz
	@$(BIN)/python -m tests.server.fuzzing $(ARGS)

check: .venv/for-tests ## lint, types, direction of imports, plain English
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.prose

format: .venv/for-tests ## put the code into its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

campaign: .venv/for-tests ## kill agents KILLS times on SQLite, half as often on PostgreSQL, and count
	$(BIN)/python -m tests.crash.campaign --sqlite $(KILLS) --postgres $$(($(KILLS) / 2)) $(ARGS)
	$(BIN)/python -m tests.crash.worker_campaign --sqlite $$(($(KILLS) / 4)) --postgres $$(($(KILLS) / 4)) $(ARGS)

leases: .venv/for-tests ## kill external workers and their agent KILLS times on each database, and judge
	$(BIN)/python -m tests.crash.worker_campaign --sqlite $(LEASES) --postgres $(LEASES) $(ARGS)

# KILLS=300 for more faults on each database; ARGS="--seed 7" for the same choices again.
siege: .venv/for-tests ## kill, stop and restart agents and PostgreSQL, and judge from outside alone
	$(BIN)/python -m tests.siege --sqlite $(FAULTS) --postgres $(FAULTS) $(ARGS)

# Ray and Dask have an environment of their own: together they are larger than everything else.
conformance: build/conformance/made ## run the tests of executors on local clusters of Ray and Dask too
	@AGENT_TEST_CLUSTERS=1 build/conformance/bin/python -m pytest -n 0 tests/steps/executors/test_conformance.py $(ARGS)

build/conformance/made: pyproject.toml
	@echo "setting up build/conformance (once; some minutes)"
	@$(PYTHON) -m venv build/conformance
	@build/conformance/bin/python -m pip install -qq --disable-pip-version-check -e ".[test,ray,dask]"
	@touch $@

crashpoints: .venv/for-tests ## end a daemon at every sync of its work, and at every one of its recovery
	$(BIN)/python -m tests.crash.crashpoints $(ARGS)

# SEEDS=10000 runs so many from FIRST on; SEED=n replays one with its trace; ARGS=--shrink with it
# cuts a failure down and keeps it under tests/simulation/regressions.
simulate: .venv/for-tests ## run the engine on a simulated machine, fault after fault
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000) --first $(or $(FIRST),0)) $(ARGS)

# The days around changes of clocks are compared in `make test` as well; this takes a quarter of an hour.
cron: .venv/for-tests ## compare the instants of schedules with Debian's cron, every minute of ten years
	$(BIN)/python -m tests.triggers.cron_campaign $(ARGS)

mutants: .venv/for-tests ## break the engine on purpose, one way at a time; every one must be noticed
	$(BIN)/python -m tests.mutants.hunt $(ARGS)

# Each file by its hash, for every platform and every Python that we support. It names no registry.
constraints: .venv/for-audits ## pin what a release installs, in constraints.txt
	@$(BIN)/uv pip compile -q pyproject.toml --extra openai --extra mcp --extra slack --extra artifacts --extra watch --extra notify --extra mail --extra keyring --extra otel --universal --upgrade \
		--python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make constraints" -o constraints.txt

audit: .venv/for-audits ## licences and known vulnerabilities of what a release installs
	@$(BIN)/python -m tests.dependencies.audit

man: .venv/for-running ## write the man page from the commands
	@$(BIN)/agent help --man > man/agent.1

bench: .venv/for-benchmarks ## measure beside its peers; ARGS="--only sqlite" for a part
	$(BIN)/python -m bench $(ARGS)

house: .venv/for-tests ## count how large and entangled the program is; write it into docs/architecture.md
	@$(BIN)/python -m tests.house --write $(ARGS)

targets: .venv/made ## try every target of this list in a fresh clone; ARGS="bench docs" for some
	@$(BIN)/python -m tests.fresh_clone $(ARGS)

docs: .venv/for-tests ## build the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "built; read it with: python3 -m http.server --directory build/site 8000"

clean: ## remove what make made (not your data)
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.venv/made:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or name it with make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) does not run, or is too old: Python 3.11 or newer is needed, as in make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) could not make a virtual environment (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@touch $@

comma := ,

define install
	@echo "setting up .venv (once; about a minute)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e "$(1)"
	@touch $@ .venv/for-running
endef

.venv/for-running: .venv/made pyproject.toml
	$(call install,.[openai$(comma)mcp])

.venv/for-tests: .venv/made pyproject.toml
	$(call install,.[test])

.venv/for-fuzzing: .venv/for-tests
	$(call install,.[fuzz])

.venv/for-audits: .venv/for-running
	$(call install,.[audit])

# What it measures with stands in tests/support.
.venv/for-benchmarks: .venv/for-tests
	$(call install,.[bench])
