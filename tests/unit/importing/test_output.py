from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

from trax import Trax, cron, every, exclude, fire_all
from trax.cli.importing.foreign import NO_LIMIT, Command, ImportedJob
from trax.cli.importing.output import python_module
from trax.schedule.every import with_variance
from trax.testing import Harness

NOW = datetime(2027, 3, 20, 12, 0, 17, tzinfo=UTC)


def run(*found: ImportedJob) -> Any:
    """The module that is printed, as Python sees it."""
    module = ModuleType("moved_in")
    exec(python_module(found, 'a "source"\\'), vars(module))  # noqa: S102 - that it can be run is the point
    return module


def foreign(name: str, **more: Any) -> ImportedJob:
    said: dict[str, Any] = {"task": f"shop.{name}", "schedule_text": "as it was", **more}
    return ImportedJob(external_id=name, **said)


def declared(module: Any) -> dict[str, Any]:
    timetable = module.app.context.declarations.timetable()
    return {one.external_id: one for one in timetable.manifests}


def test_a_schedule_comes_out_as_it_went_in() -> None:
    module = run(
        foreign("a", when=cron("0 7 * * mon-fri", tz="Europe/Berlin"), options={"start": "next_occurrence"}),
        foreign("b", when=with_variance(every(seconds=90, anchored=True), timedelta(seconds=5))),
        foreign(
            "c",
            when=every(hours=2),
            options={
                "exclude": exclude.days_of_week("sat", "sun"),
                "on_misfire": fire_all(10),
                "misfire_threshold": timedelta(minutes=2),
                "max_instances": 3,
                "enabled": False,
                "group": "mail",
            },
        ),
        foreign("d"),
    )

    a, b, c, d = declared(module).values()
    assert (a.schedule, a.start) == (cron("0 7 * * mon-fri", tz="Europe/Berlin"), "next_occurrence")
    assert b.schedule == every(seconds=90, anchored=True, variance=timedelta(seconds=5))
    assert (c.exclusions, c.misfire_limit) == ((exclude.days_of_week("sat", "sun"),), 10)
    assert (c.misfire_threshold, c.max_instances, c.enabled) == (timedelta(minutes=2), 3, False)
    assert (c.group, d.schedule_type) == ("mail", "on_demand")


def test_a_run_has_the_same_time_limit_as_before_the_import() -> None:
    module = run(
        foreign("a", when=every(hours=1)),
        foreign("b", when=every(hours=1), timeout=timedelta(minutes=5)),
        foreign("c", when=NOW),
        foreign("d"),
    )

    limits = {name: one.timeout for name, one in declared(module).items()}
    assert limits == {"a": NO_LIMIT, "b": timedelta(minutes=5), "c": NO_LIMIT, "d": NO_LIMIT}
    assert "NO_LIMIT" not in vars(run(foreign("b", timeout=timedelta(minutes=5))))


def test_a_once_job_keeps_its_moment() -> None:
    past = run(foreign("past", when=NOW - timedelta(days=3650)))
    future = run(foreign("future", when=datetime(2090, 1, 1, tzinfo=UTC)))

    assert declared(past)["past"].delay == timedelta()
    assert declared(future)["future"].delay > timedelta(days=365)


def test_inputs_are_kept_and_accepted_by_their_trains() -> None:
    module = run(
        foreign("one", when=every(hours=1), input={"to": 'a "b"\n', "of": [1, None, True]}),
        foreign("two", when=every(hours=1), input=[1, 2]),
        foreign("three", when=every(hours=1)),
        foreign("four", when=every(hours=1), task="shop.one", input=None),
    )

    manifests = declared(module)
    assert manifests["one"].input == '{"to":"a \\"b\\"\\n","of":[1,null,true]}'
    assert manifests["two"].input == "[1,2]"
    assert (manifests["four"].train, manifests["four"].input) == ("one", "null")


def test_imported_text_cannot_become_code() -> None:
    hostile = 'x\nraise SystemExit("""'

    module = run(
        foreign(
            "a", task=hostile, schedule_text=hostile, remarks=(hostile, "\x1b[2J"), input={hostile: hostile}
        )
    )

    assert list(declared(module)) == ["a"]


def test_tasks_that_are_called_alike_get_functions_of_their_own() -> None:
    names = {"shop.run", "farm.run", "app", "x.class", "1st"}
    module = run(
        *(foreign(f"m{at}", task=task, when=every(hours=1)) for at, task in enumerate(sorted(names)))
    )

    trains = {one.train for one in declared(module).values()}
    assert len(trains) == len(names)
    assert isinstance(module.app, Trax)


async def test_a_generated_train_without_a_body_names_the_original() -> None:
    module = run(foreign("greet", when=every(hours=1)))

    with pytest.raises(NotImplementedError, match=r"implement shop\.greet"):
        await module.greet.run(None)


async def test_a_line_of_a_crontab_is_run_as_cron_ran_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAX_DATABASE_URL", "memory://")
    line = f"cat > {tmp_path}/out; echo $WHO >> {tmp_path}/out"
    module = run(
        foreign("good", when=every(hours=1), input=Command(line, "Hello\n", {"WHO": "Ada"})),
        foreign("bad", when=every(hours=1), input=Command("exit 3")),
    )

    async with Harness(module.app, now=NOW) as h:
        await h.run_until_idle()
        runs = {run.manifest: run for run in await module.app.executions.list()}

    assert (tmp_path / "out").read_text(encoding="utf-8") == "Hello\nAda\n"
    assert runs["good"].state == "completed"
    assert (runs["bad"].state, runs["bad"].failure_exception) == ("failed", "CalledProcessError")
