from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support import preloaded
from tests.support.preloaded import TRAX

from trax.cli import build_parser, main

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


def trax(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return preloaded.run([TRAX, *arguments], cwd=folder)


def test_status_and_migrate_report_the_revision_of_the_tables(empty_url: str, tmp_path: Path) -> None:
    if empty_url == "memory://":
        empty_url = f"sqlite:///{tmp_path}/other.db"
    url = ("--database-url", empty_url)

    missing = trax("db", "status", *url, folder=tmp_path)
    migrated = trax("db", "migrate", *url, folder=tmp_path)
    again = trax("db", "migrate", *url, folder=tmp_path)
    current = trax("db", "status", "--json", *url, folder=tmp_path)

    assert (missing.returncode, "run `trax db migrate`" in missing.stdout) == (2, True)
    assert (migrated.returncode, "migrated from nothing to 0001" in migrated.stdout) == (0, True)
    assert "already at 0001" in again.stdout
    assert current.returncode == 0
    assert json.loads(current.stdout) == {
        "database": empty_url,
        "state": "current",
        "current": "0001",
        "wanted": "0001",
    }


def test_db_status_creates_no_file(tmp_path: Path) -> None:
    asked = trax("db", "status", "--database-url", "sqlite:///trax.db", folder=tmp_path)

    assert (asked.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "no Trax tables yet" in asked.stdout


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://box/db", "trax: unsupported database 'mysql'"),
        (
            "postgresql://ada:secret@127.0.0.1:1/db",
            "trax: postgresql://ada:***@127.0.0.1:1/db cannot be reached",
        ),
    ],
)
def test_an_error_is_one_clear_line(tmp_path: Path, url: str, said: str) -> None:
    failed = trax("db", "migrate", "--database-url", url, folder=tmp_path)

    assert failed.returncode == 1
    assert failed.stderr.startswith(said)
    assert "Traceback" not in failed.stderr
    assert "secret" not in failed.stderr
    debugged = trax("--debug", "db", "migrate", "--database-url", url, folder=tmp_path)
    assert "Traceback" in debugged.stderr


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]], ids=str)
def test_the_help_names_every_command_in_80_columns(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)

    shown = capsys.readouterr().out
    named = {line.split()[0].rstrip(",") for line in shown.splitlines() if line.startswith("  ")}
    assert ended.value.code == 0
    assert named | {"-h"} == set(build_parser())
    assert max(map(len, shown.splitlines())) <= 80
