# Everything here needs python3 (3.11 or newer), pip and make; the rest is installed into .venv on first use.
PYTHON ?= python3
# For the peers that need a newer Python: one from pyenv, or one that uv finds or downloads.
NEWER_PYTHON ?= $(or $(firstword $(sort $(wildcard $(HOME)/.pyenv/versions/3.1[2-9].*/bin/python))),>=3.12)
# A proxy may be known to the certificate store of the system alone. Where there is no store, uv has its own.
CERTIFICATES := $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
  /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem))
export UV_SYSTEM_CERTS ?= $(if $(CERTIFICATES),true,false)
BIN := .venv/bin
READY := .venv/ready
QUICK := -m 'not postgresql and not ray' $(addprefix tests/,unit store flow host house) \
  $(patsubst %,--ignore=tests/house/test_%.py,docs tutorial wheel)

.PHONY: help demo test quick simulate mutants soak check hooks docs audit sbom fmt bench peers locks clean

help:
	@echo "make demo    run an example app on SQLite, with its dashboard, until Ctrl-C; then print a summary"
	@echo "make test    run all tests, on SQLite and PostgreSQL (ARGS=… selects some)"
	@echo "make quick   most tests in 2 min: unit, store, flow and host on SQLite, and the rules of the code; without"
	@echo "             PostgreSQL, race, chaos, web, cli, engine, docs, wheel and typing tests (also takes ARGS=…)"
	@echo "make simulate  check the guarantees in 10,000 simulated hours and a million admissions, each from a seed;"
	@echo "             a failing seed prints its events (ARGS='--hours 500 --admissions 0' is a short simulation);"
	@echo "             then 1,000 hours on PostgreSQL with faults on the way, and the gate and the model at length"
	@echo "make mutants  take out one guard of the code after the other: a named test must fail for each"
	@echo "             (ARGS='claim gate' runs those with one of these words, ARGS=--list prints all)"
	@echo "make check   run the linter, formatter check, type checker, import layers and lock files check"
	@echo "make audit   look for known vulnerabilities in pinned packages, and for risky code"
	@echo "make sbom    write a CycloneDX bill of materials of the release to dist"
	@echo "make docs    build the docs as a searchable site in dist/docs; a broken link is an error"
	@echo "make hooks   install a git hook that runs the checks before each commit"
	@echo "make fmt     format the code"
	@echo "make bench   run the benchmarks and print figures and goals; ARGS=--help lists them, and"
	@echo "             ARGS=report writes docs/reference/benchmarks.md from the latest figures"
	@echo "make soak    run a fleet under load and faults for MINUTES=30; check that nothing grows, is lost or fails"
	@echo "make locks   pin new dependencies, or with UPGRADE=1 the newest allowed versions of all"

demo: $(READY)
	@$(BIN)/trax demo --port 0

# A Ray cluster needs the whole machine, so its tests run last and one by one.
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
	@$(if $(ARGS),,$(BIN)/python -m tests.simulation.soak --postgresql --profile short --hours 1000 --admissions 0)
	@$(if $(ARGS),,TRAX_GATE_SEEDS=300 TRAX_MODEL_EXAMPLES=1000 $(BIN)/pytest -q -n 2 $(addprefix tests/flow/test_,gate_ways.py model.py))

mutants: $(READY)
	@$(BIN)/python -m tests.mutations $(ARGS)

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

# The peers have an environment of their own; without it, the other benchmarks still run.
peers: $(READY)
	@$(MAKE) --silent --no-print-directory .venv-bench/ready || echo "the peers could not be installed"
	@$(MAKE) --silent --no-print-directory .venv-bench/newer/ready || \
	  echo "Python 3.12, which some peers need, was not found; set NEWER_PYTHON=/path/to/python"

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
	@$(PYTHON) requirements/bootstrap.py $(CERTIFICATES)
	@touch $@
