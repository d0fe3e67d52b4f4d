# Everything here needs python3 (3.11 or newer), pip and make; the rest is installed into .venv on first use.
PYTHON ?= python3
# For the peers that need a newer Python than ours: one of pyenv, or what uv finds or fetches.
NEWER_PYTHON ?= $(or $(firstword $(sort $(wildcard $(HOME)/.pyenv/versions/3.1[2-9].*/bin/python))),>=3.12)
BIN := .venv/bin
READY := .venv/ready
QUICK := -m 'not postgresql and not ray' $(addprefix tests/,unit store flow host house) \
  $(patsubst %,--ignore=tests/house/test_%.py,docs tutorial wheel)

.PHONY: help demo test quick simulate soak check hooks docs audit sbom fmt bench peers locks clean

help:
	@echo "make demo    run the real system on the embedded default and show it at work, with its dashboard"
	@echo "make test    run every test, on SQLite and PostgreSQL (ARGS=… runs those that it names)"
	@echo "make quick   most of it in 2 min: units, store, flows and hosts on SQLite, rules of the house; no"
	@echo "             PostgreSQL, races, chaos, web, commands, engines, docs, wheels or types (takes ARGS=… too)"
	@echo "make simulate  the engine against its promises: 10,000 simulated hours and a million admissions, from seeds;"
	@echo "             a failing seed tells its story (ARGS='--hours 500 --admissions 0' is a short one)"
	@echo "make check   lint, format, types, layers, locks"
	@echo "make audit   known vulnerabilities of what is pinned, and risky code"
	@echo "make sbom    a CycloneDX bill of materials of the release, in dist"
	@echo "make docs    build the pages into a site that can be searched, in dist/docs; a dead link fails it"
	@echo "make hooks   have git run what make check runs before each commit"
	@echo "make fmt     format the code"
	@echo "make bench   measure, and print the figures beside their goals; ARGS=--help says what there is, and"
	@echo "             ARGS=report writes docs/benchmarks.md from what was measured last"
	@echo "make soak    a fleet under load and faults for MINUTES=30: does anything grow, get lost or break?"
	@echo "make locks   pin the newest allowed versions (UPGRADE=1) or take in new dependencies"

demo: $(READY)
	@$(BIN)/trax demo --port 0

# A Ray cluster wants the machine to itself, so its tests come last and one by one.
test: $(READY)
	@requirements/browser.sh
	@requirements/rabbitmq.sh
	@requirements/pgbouncer.sh
	@requirements/faketime.sh
	@$(BIN)/pytest -n auto --dist worksteal $(ARGS)
	@$(if $(ARGS),,$(BIN)/pytest -m ray)

quick: $(READY)
	@$(BIN)/pytest -n auto --dist worksteal $(or $(ARGS),$(QUICK))

simulate: $(READY)
	@$(BIN)/python -m tests.simulation.soak $(ARGS)

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python requirements/lock.py --check

hooks: $(READY)
	@$(BIN)/pre-commit install

docs: .venv-docs/ready
	@rm -rf dist/docs
	@.venv-docs/bin/sphinx-build -q -W --keep-going -E -b html -d .venv-docs/pages -c docs/site . dist/docs
	@echo "dist/docs/index.html"

audit: $(READY)
	@$(BIN)/ruff check --select S src
	@$(BIN)/python requirements/release.py audit

sbom: $(READY)
	@$(BIN)/python requirements/release.py sbom

fmt: $(READY)
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: $(READY) peers
	@$(BIN)/python -m bench $(ARGS)

soak: $(READY)
	@$(BIN)/python -m bench.soak --minutes $(or $(MINUTES),30)

# Whom we are measured beside has an environment of its own; without it the rest can still be measured.
peers: $(READY)
	@$(MAKE) --silent --no-print-directory .venv-bench/ready || echo "the peers could not be installed"
	@$(MAKE) --silent --no-print-directory .venv-bench/newer/ready || \
	  echo "there is no Python 3.12 for some peers; NEWER_PYTHON=/path/to/python names one"

locks: .venv/uv
	@$(BIN)/python requirements/lock.py $(if $(UPGRADE),--upgrade)

clean:
	rm -rf .venv .venv-bench .venv-docs

$(READY): .venv/uv requirements/dev.txt pyproject.toml
	@echo "installing into .venv …"
	@$(BIN)/uv pip sync --quiet --require-hashes --compile-bytecode requirements/dev.txt
	@$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv-bench/ready: requirements/bench.txt | $(READY)
	@echo "installing peers into .venv-bench …"
	@rm -f $@
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-bench
	@$(BIN)/uv pip sync --quiet --require-hashes --compile-bytecode --python .venv-bench/bin/python requirements/bench.txt
	@touch $@

.venv-bench/newer/ready: .venv-bench/ready
	@rm -f $@
	@$(BIN)/uv venv --quiet --clear --python "$(NEWER_PYTHON)" .venv-bench/newer
	@$(BIN)/uv pip sync --quiet --require-hashes --compile-bytecode --python .venv-bench/newer/bin/python requirements/bench.txt
	@touch $@

.venv-docs/ready: requirements/docs.txt | $(READY)
	@echo "installing into .venv-docs …"
	@rm -f $@
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-docs
	@$(BIN)/uv pip sync --quiet --require-hashes --python .venv-docs/bin/python requirements/docs.txt
	@touch $@

.venv/uv: requirements/uv.txt requirements/bootstrap.py
	@$(PYTHON) requirements/bootstrap.py
	@touch $@
