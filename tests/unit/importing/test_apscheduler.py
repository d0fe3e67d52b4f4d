from __future__ import annotations

import os
import pickle
import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import apscheduler_store

from trax.cli.importing.apscheduler import LONGEST, PickleStub, parse_pickle, read_jobs
from trax.cli.importing.foreign import compare
from trax.errors import DefinitionError, StoreError
from trax.records.schedule import Cron, DaysOfWeek, Interval
from trax.schedule import fire_all
from trax.store.foreign_jobs import StoredJob, apscheduler_jobs

if TYPE_CHECKING:
    from pathlib import Path

    from trax.cli.importing.foreign import Comparison, ImportedJob

NOW = datetime(2027, 3, 20, 12, 0, 17, tzinfo=UTC)


class Bomb:
    """Runs code when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._file),)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.sqlite"


@pytest.fixture
def jobs(file: Path) -> dict[str, ImportedJob]:
    apscheduler_store.write(file)
    stored = apscheduler_jobs(f"sqlite:///{file}", apscheduler_store.TABLE)
    return {one.external_id: one for one in read_jobs(stored, NOW, trust=False)}


def test_triggers_are_read_without_opening_the_pickles(jobs: dict[str, ImportedJob]) -> None:
    assert jobs["report"].when == Cron("30 7 * * mon-fri", "Europe/Berlin")
    assert jobs["sync"].when == Interval(300, anchored=True, variance_seconds=20)
    assert jobs["once"].when == datetime(2030, 1, 1, 11, tzinfo=UTC)
    assert jobs["position"].when == Cron("0 1 * * 5#2,0L", "Europe/Berlin")
    assert jobs["thirteenth"].when == Cron("0 1 13 * *", "Europe/Berlin")
    assert jobs["thirteenth"].options["exclude"] == DaysOfWeek((0, 1, 2, 3, 5, 6))
    assert jobs["object"].when == Cron("*/20 * * * * mon,thu,sun", "Europe/Berlin")


def test_functions_and_plain_arguments_are_read_too(jobs: dict[str, ImportedJob]) -> None:
    assert (jobs["report"].task, jobs["report"].input) == ("shop.report", {"to": "ada"})
    assert (jobs["sync"].task, jobs["sync"].input) == ("shop.sync", [1, "users"])
    assert jobs["object"].input is None
    assert "use --trust" in jobs["object"].remarks[0]


def test_misfires_and_instances_become_options(jobs: dict[str, ImportedJob]) -> None:
    report, sync, position = jobs["report"], jobs["sync"], jobs["position"]

    assert report.options["on_misfire"] == "do_nothing"
    assert report.options["misfire_threshold"] == timedelta(seconds=300)
    assert (sync.options["on_misfire"], sync.options["max_instances"]) == (fire_all(1000), 3)
    assert "misfire_threshold" not in position.options
    assert "a run up to 60 s late still runs; in APScheduler up to 1 s" in position.remarks


def test_a_paused_job_is_not_enabled(jobs: dict[str, ImportedJob]) -> None:
    assert jobs["position"].options["enabled"] is False
    assert "it is paused in APScheduler" in jobs["position"].remarks
    assert "enabled" not in jobs["report"].options


def test_an_untranslatable_trigger_becomes_on_demand(jobs: dict[str, ImportedJob]) -> None:
    assert (jobs["either"].when, jobs["week"].when) == (None, None)
    assert jobs["either"].remarks[0] == "OrTrigger cannot be converted; runs on demand only"
    assert "cron has no field for the week (7)" in jobs["week"].remarks[0]


def test_an_end_date_is_remarked(jobs: dict[str, ImportedJob]) -> None:
    assert "it ends on 2030-01-01 00:00:00+01:00" in " ".join(jobs["thirteenth"].remarks)


def test_reading_runs_no_code_that_a_pickle_names(file: Path, tmp_path: Path) -> None:
    crater = tmp_path / "crater"
    bomb = pickle.dumps({"func": "a:b", "trigger": Bomb(crater)})
    apscheduler_store.write(
        file, {"bomb": bomb, "scrap": b"\x80\x05oops", "empty": pickle.dumps([]), "itself": _endless()}
    )

    stored = apscheduler_jobs(f"sqlite:///{file}", apscheduler_store.TABLE)
    found = {one.external_id: one for one in read_jobs(stored, NOW, trust=False)}

    assert not crater.exists()
    assert found["bomb"].when is None
    assert "cannot be read without running it" in found["scrap"].remarks[0]
    assert "cannot be read" in found["empty"].remarks[0]
    assert found["itself"].when is None
    assert found["report"].when is not None


def _endless() -> bytes:
    """A trigger whose time zone holds itself."""
    zone = Trigger()
    zone.__dict__["zone"] = zone
    state = pickle.dumps({"func": "a:b", "trigger": Holder(zone)})
    return state.replace(__name__.encode(), b"x" * len(__name__))


class Holder:
    """Stands for a trigger, in a pickle."""

    def __init__(self, timezone: Any) -> None:
        self.timezone = timezone


def test_trust_opens_the_pickles(tmp_path: Path) -> None:
    crater = tmp_path / "crater"
    job = StoredJob("job", None, pickle.dumps({"func": "a:b", "trigger": Trigger(), "args": [Bomb(crater)]}))

    (one,) = read_jobs([job], NOW, trust=True)

    assert crater.exists()
    assert one.theirs == (NOW + timedelta(hours=1),)


class Trigger:
    """One of somebody's own: a single moment."""

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        return None if previous else now + timedelta(hours=1)


def test_notes_remember_and_do_nothing() -> None:
    called = parse_pickle(pickle.dumps({"when": NOW, "what": Bomb.__reduce__, "who": Trigger()}))

    assert called["when"] == NOW
    assert isinstance(called["who"], PickleStub)
    assert called["who"].origin == f"{__name__}:Trigger"


def test_an_oversized_pickle_is_not_read() -> None:
    with pytest.raises(DefinitionError, match="is too large"):
        parse_pickle(b"x" * (LONGEST + 1))


def test_a_store_that_is_not_there_is_not_made(file: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        apscheduler_jobs(f"sqlite:///{file}", apscheduler_store.TABLE)

    assert not file.exists()


def test_a_table_that_is_not_there_is_named(file: Path) -> None:
    apscheduler_store.write(file)

    with pytest.raises(StoreError, match="cannot be read as a job store with table 'jobs'"):
        apscheduler_jobs(f"sqlite:///{file}", "jobs")


def test_both_sides_agree_by_its_own_reckoning(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_module("apscheduler")
    shop: Any = ModuleType("shop")
    shop.Customer = type("Customer", (), {"__module__": "shop"})
    monkeypatch.setitem(sys.modules, "shop", shop)
    apscheduler_store.write(file)
    stored = apscheduler_jobs(f"sqlite:///{file}", apscheduler_store.TABLE)

    closed = _by_name(compare(list(read_jobs(stored, NOW, trust=False)), NOW))
    opened = _by_name(compare(list(read_jobs(stored, NOW, trust=True)), NOW))

    for name in ("report", "position", "object", "once"):
        assert closed[name].agrees, name
        assert opened[name].job.theirs == closed[name].job.theirs
    assert closed["sync"].verdict == "same interval, shifted by 17 s"
    assert closed["thirteenth"].verdict == "4 of 10 agree"
    assert closed["either"].job.theirs is None
    assert len(opened["either"].job.theirs or ()) == 10


def _by_name(found: list[Comparison]) -> dict[str, Comparison]:
    return {one.job.external_id: one for one in found}
