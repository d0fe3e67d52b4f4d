from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support import apscheduler_store
from tests.support.operator import Operator

if TYPE_CHECKING:
    from pathlib import Path

BEAT = """
from celery import Celery
from celery.schedules import crontab

app = Celery(set_as_current=False)
app.conf.beat_schedule = {"report": {"task": "shop.report", "schedule": crontab(hour=3, minute=30)}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture
def person(capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator("", capsys)


def test_a_crontab_becomes_a_module_and_a_plan(person: Operator, folder: Path) -> None:
    tab = "30 3 * * * backup --all\n@reboot warm-up\n0 0 30 2 * never\n"
    (folder / "tab").write_text(tab, encoding="utf-8")

    told = person.plainly("import", "crontab", "tab", "--tz", "Europe/Berlin")

    (folder / "moved.py").write_text(told.out, encoding="utf-8")
    assert told.code == 0
    assert "backup\t30 3 * * *\tAt 03:30 every day (Europe/Berlin)\t10 of 10 agree\t" in told.err
    assert "warm-up\t@reboot\ton demand\ton demand only\t-" in told.err
    assert "  - line 3 never runs" in told.err
    assert "  - cron does not catch up runs missed" in told.err
    assert told.out.count("timeout=NO_LIMIT") == 3
    linted = person.plainly("lint", "moved.py:app")
    assert (linted.code, linted.out) == (0, "no findings\n")
    assert not (folder / "trax.db").exists()


def test_a_crontab_may_come_from_a_pipe(person: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("0 1 * * * root sweep\n"))

    told = person.plainly("import", "crontab", "-", "--users", "--tz", "UTC", "--json")

    (manifest,) = json.loads(told.out)["manifests"]
    assert (manifest["task"], manifest["agrees"], len(manifest["ours"])) == ("sweep", True, 10)
    assert manifest["theirs"] == manifest["ours"]
    assert manifest["timeout"] is None


def test_all_errors_of_a_crontab_are_reported_at_once(person: Operator, folder: Path) -> None:
    (folder / "tab").write_text("0 25 * * * x\n0 1 * * * fine\n@dayly x\n", encoding="utf-8")

    told = person.plainly("import", "crontab", "tab")

    assert (told.code, told.out) == (1, "")
    first, second = told.err.splitlines()
    assert first.startswith("trax: line 1 of the crontab, '0 25 * * * x': ")
    assert second.startswith("line 3 of the crontab, '@dayly x': ")


def test_a_beat_schedule_becomes_a_module_and_a_plan(person: Operator, folder: Path) -> None:
    (folder / "beat.py").write_text(BEAT, encoding="utf-8")

    told = person.plainly("import", "celery-beat", "beat.py:app")

    assert 'cron("30 3 * * *")' in told.out
    assert "report\tcrontab: 30 3 * * *\tAt 03:30 every day\t10 of 10 agree\t" in told.err


def test_a_job_store_becomes_a_module_and_a_plan(person: Operator, folder: Path) -> None:
    apscheduler_store.write(folder / "jobs.sqlite")

    told = person.plainly("import", "apscheduler", "jobs.sqlite")

    assert 'cron("30 7 * * mon-fri", tz="Europe/Berlin")' in told.out
    assert "timeout=NO_LIMIT" in told.out
    assert "unpickling runs code" in told.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ("crontab", "nowhere"),
            "file 'nowhere' cannot be read (No such file or directory); give a crontab file, or - for stdin",
        ),
        (("celery-beat", "nowhere"), "invalid app 'nowhere'"),
        (("celery-beat", "beat.py:apq"), "beat.py has no attribute 'apq'; did you mean 'app'?"),
        (("apscheduler", "nowhere.db"), "file 'nowhere.db' does not exist"),
    ],
)
def test_a_missing_source_is_reported(
    person: Operator, folder: Path, words: tuple[str, str], reason: str
) -> None:
    (folder / "beat.py").write_text(BEAT, encoding="utf-8")

    told = person.plainly("import", *words)

    assert told.code == 1
    assert reason in told.err
