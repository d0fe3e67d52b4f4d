# Everything here needs python3 (3.11 or newer), pip and make; the rest is installed into .venv on first use.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: help demo test check fmt bench locks clean

help:
	@echo "make demo    run the real system on the embedded default and show it at work"
	@echo "make test    run every test, on SQLite and PostgreSQL"
	@echo "make check   lint, format, types, layers, locks"
	@echo "make fmt     format the code"
	@echo "make bench   measure, and print the figures beside their goals"
	@echo "make locks   pin the newest allowed versions (UPGRADE=1) or take in new dependencies"

demo: $(READY)
	@$(BIN)/trax demo

test: $(READY)
	@$(BIN)/pytest -n auto $(ARGS)

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python requirements/lock.py --check

fmt: $(READY)
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: $(READY)
	@$(BIN)/python -m bench $(ARGS)

locks: .venv/uv
	@$(BIN)/python requirements/lock.py $(if $(UPGRADE),--upgrade)

clean:
	rm -rf .venv

$(READY): .venv/uv requirements/dev.txt pyproject.toml
	@echo "installing into .venv …"
	@$(BIN)/uv pip sync --quiet --require-hashes --compile-bytecode requirements/dev.txt
	@$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv/uv: requirements/uv.txt requirements/bootstrap.py
	@$(PYTHON) requirements/bootstrap.py
	@touch $@
