"""What a command or an app may load before it needs it: importing is most of the time that a start takes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.support.installing import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

DATABASES = frozenset({"alembic", "psycopg", "sqlalchemy"})
WEB = frozenset({"fastapi", "h11", "jinja2", "starlette", "uvicorn"})
EXTRAS = frozenset({"boto3", "celery", "httpx2", "opentelemetry", "ray"})
VALIDATION = frozenset({"annotated_types", "pydantic", "pydantic_core"})
COMMAND_LINE = frozenset({"attrs", "cyclopts", "rich"})
HELP = DATABASES | WEB | EXTRAS | VALIDATION | {"markdown_it", "pygments", "asyncio", "importlib.metadata"}
RARE = frozenset({"cyclopts.completion.install", "difflib", "trax.masking", "trax.cli.importing"})
"""Needed for an error, or by one command."""
ON_SQLITE = (
    WEB
    | EXTRAS
    | {"alembic", "psycopg", "sqlalchemy.orm", "sqlalchemy.dialects.postgresql"}
    | {"rich", "trax.cli.importing"}
)

PROGRAM = """
import atexit, json, sys

def report():
    installed = sorted(name for name, module in list(sys.modules.items())
                       if "site-packages" in (getattr(module, "__file__", None) or ""))
    with open("loaded.json", "w", encoding="utf-8") as file:
        json.dump([sorted(sys.modules), installed], file)

atexit.register(report)
"""
DATABASE = ["--database-url", "sqlite:///jobs.db"]
COMMAND = "import sys; from trax.cli import main; main({words!r})"


class Start(NamedTuple):
    """A program or a command line, and what it may load."""

    what: str | list[str]
    forbidden: frozenset[str]
    most: int
    """How many modules of other packages it may load: as measured, and a few more."""


STARTS = {
    "import trax": Start("import trax", HELP | COMMAND_LINE, 0),
    "an app": Start("import trax; trax.Trax('memory://')", DATABASES | WEB | EXTRAS | COMMAND_LINE, 65),
    "an app with a schedule": Start(
        "import trax\n"
        "app = trax.Trax('memory://')\n"
        "@app.train\n"
        "def add(number: int) -> int: return number + 1\n"
        "app.schedule(add, 'add', 1, trax.every(minutes=5))",
        DATABASES | WEB | EXTRAS | COMMAND_LINE,
        65,
    ),
    "--help": Start(["--help"], HELP | RARE | COMMAND_LINE, 0),
    "--version": Start(["--version"], (HELP | RARE | COMMAND_LINE) - {"importlib.metadata"}, 0),
    "completion": Start(
        ["__complete", "sta"], (HELP | {"rich"} | RARE) - {"cyclopts.completion.install"}, 60
    ),
    "run --help": Start(["run", "--help"], HELP - {"markdown_it", "pygments"}, 230),
    "status --help": Start(["status", "--help"], HELP - {"markdown_it", "pygments"}, 230),
    "status": Start(["status", *DATABASE], ON_SQLITE, 200),
    "status --json": Start(["status", "--json", *DATABASE], ON_SQLITE, 200),
    "manifests list --json": Start(["manifests", "list", "--json", *DATABASE], ON_SQLITE, 205),
}
TRAX_FORBIDDEN = {
    "status": ["trax.app.app", "trax.train", "trax.schedule", "trax.worker", "trax.server"],
    "an app": ["trax.store.store", "trax.server", "trax.remote", "trax.inspect", "trax.cli"],
    "--help": ["trax.store", "trax.app", "trax.train", "trax.records"],
    "run --help": ["trax.store", "trax.app", "trax.train", "trax.records", "trax.server", "trax.cli.serve"],
}
"""Packages of Trax itself that a start must not load."""


def loaded(what: str | list[str], folder: Path) -> tuple[set[str], set[str]]:
    """All modules that the program has loaded when it ends, and those of other packages."""
    program = PROGRAM + (what if isinstance(what, str) else COMMAND.format(words=what))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("TRAX_", "COV_"))
    }
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    every, installed = json.loads((folder / "loaded.json").read_text(encoding="utf-8"))
    return set(every), {
        name for name in installed if name.partition(".")[0] not in {"trax", "_distutils_hack"}
    }


@pytest.fixture
def folder(tmp_path: Path, migrated_file: Path) -> Path:
    shutil.copyfile(migrated_file, tmp_path / "jobs.db")
    return tmp_path


@pytest.mark.parametrize("name", STARTS)
def test_a_start_loads_only_what_it_needs(name: str, folder: Path) -> None:
    start = STARTS[name]

    modules, installed = loaded(start.what, folder)

    assert start.forbidden & modules == set()
    assert within(TRAX_FORBIDDEN.get(name, []), modules) == []
    assert len(installed) <= start.most, sorted(installed)


def within(packages: list[str], modules: set[str]) -> list[str]:
    return [one for one in packages if any(name == one or name.startswith(f"{one}.") for name in modules)]


def test_the_forbidden_modules_exist() -> None:
    sources = PROJECT / "src"

    missing = [
        name
        for names in TRAX_FORBIDDEN.values()
        for name in names
        if not any((sources / name.replace(".", "/")).with_suffix(end).exists() for end in ("", ".py"))
    ]

    assert missing == []
