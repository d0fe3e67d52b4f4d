from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from xml.etree import ElementTree as ET

from trax.inspect.forecast_figures import build_figures, percentile
from trax.inspect.gantt import busiest_day, draw_day
from trax.inspect.simulate import Forecast
from trax.records.states import State
from trax.store.runs.run_lists import TimedRun

MIDNIGHT = datetime(2027, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SVG = "{http://www.w3.org/2000/svg}"


def at(hour: float, *, day: int = 0) -> datetime:
    return MIDNIGHT + day * DAY + timedelta(hours=hour)


def run(
    manifest: str,
    due: datetime,
    start: datetime | None,
    end: datetime | None,
    state: State = State.COMPLETED,
    attempt: int = 1,
) -> TimedRun:
    return TimedRun(manifest, due, start, end, state, attempt, exempt=False)


def forecast(*runs: TimedRun, days: int = 1, limit: int | None = 2) -> Forecast:
    return Forecast(
        start=MIDNIGHT,
        end=MIDNIGHT + days * DAY,
        seed=1,
        servers=1,
        slots=10,
        resolution=timedelta(seconds=1),
        max_active_jobs=None,
        runs=runs,
        manifests=("extract", "load", "mail"),
        parents={"load": "extract"},
        group_of={"extract": "etl", "load": "etl", "mail": "mail"},
        limits={"etl": limit, "mail": None},
        dead_letters={"load": 1},
        trains={},
    )


def parse(drawn: str) -> ET.Element:
    return ET.fromstring(drawn)  # noqa: S314 - our own


def test_a_percentile_is_a_value_that_occurs() -> None:
    waits = [timedelta(seconds=number) for number in range(1, 21)]

    assert percentile(waits, 0.5) == timedelta(seconds=10)
    assert percentile(waits, 0.95) == timedelta(seconds=19)
    assert percentile(waits, 1.0) == timedelta(seconds=20)
    assert percentile([], 0.5) is None


def test_lateness_is_the_time_from_due_to_start() -> None:
    figures = build_figures(
        forecast(
            run("load", at(1), at(2), at(3), State.FAILED),
            run("load", at(4), at(4), at(5), State.CANCELLED, attempt=2),
            run("load", at(6), None, None, State.PENDING),
        )
    )

    extract, load, _ = figures.manifests
    assert (load.runs, load.failures, load.timeouts, load.dead_letters) == (2, 1, 1, 1)
    assert (load.p50_lateness, load.longest_wait) == (timedelta(0), timedelta(hours=1))
    assert (load.first_start, load.last_end) == (at(2), at(5))
    assert (extract.runs, extract.p95_lateness, extract.first_start) == (0, None, None)


def test_a_limit_is_full_while_so_many_runs_are_active() -> None:
    figures = build_figures(
        forecast(
            run("extract", at(0), at(0), at(6)),
            run("load", at(0), at(0), at(3)),
            run("load", at(3), at(3), at(4)),
            run("mail", at(0), at(0), at(24)),
        )
    )

    everything, etl, mail = figures.groups
    assert (everything.group, everything.limit, everything.peak) == (None, None, 3)
    assert (etl.limit, etl.peak, etl.share_at_limit) == (2, 2, 4 / 24)
    assert (mail.limit, mail.share_at_limit) == (None, 0.0)


def test_a_chain_lasts_from_the_due_time_of_its_root_to_the_last_end() -> None:
    figures = build_figures(
        forecast(
            run("extract", at(2), at(2.5), at(3)),
            run("load", at(3), at(3), at(4)),
            run("extract", at(2, day=1), at(2, day=1), at(3, day=1)),
            run("load", at(3, day=1), at(3, day=1), at(4, day=1), State.FAILED),
            run("load", at(5, day=1), at(5, day=1), at(6, day=1), attempt=2),
            days=2,
        )
    )

    [chain] = figures.chains
    assert (chain.root, chain.occurrences) == ("extract", 2)
    assert (chain.p50, chain.longest) == (timedelta(hours=2), timedelta(hours=4))
    assert (chain.p50_end, chain.latest_end) == (at(4), at(6, day=1))
    first, second = figures.days
    assert (first.runs, first.failures, first.makespan) == (2, 0, timedelta(hours=2))
    assert (second.day, second.failures, second.chains_end) == (date(2027, 3, 2), 1, at(6, day=1))
    assert busiest_day(figures) == date(2027, 3, 2)


def test_a_chart_has_a_bar_and_a_title_for_each_run_of_its_day() -> None:
    shown = [
        run("extract", at(2), at(3), at(4)),
        run("load", at(4), at(4), at(5), State.FAILED),
        run("load", at(23), at(23.5), None, State.IN_PROGRESS),
    ]
    other_day = run("extract", at(2, day=1), at(2, day=1), at(3, day=1))

    drawn = parse(draw_day(forecast(*shown, other_day, days=2), date(2027, 3, 1)))

    bars = drawn.findall(f"{SVG}g[@class='run']")
    titles = [bar.findtext(f"{SVG}title") for bar in bars]
    assert titles == [
        "extract: due 02:00:00, started 03:00:00, took 1 h, completed",
        "load: due 04:00:00, started 04:00:00, took 1 h, failed",
        "load: due 23:00:00, started 23:30:00, in progress",
    ]
    assert drawn.findtext(f"{SVG}title") == "Simulated runs on Monday, 01 March 2027 (UTC)"
    assert "load: 2 runs, the last ends at 05:00, 1 failed" in (drawn.findtext(f"{SVG}desc") or "")


def test_a_chart_of_a_day_without_runs_shows_no_runs() -> None:
    assert "No runs." in draw_day(forecast(), date(2027, 3, 1))


def test_a_name_cannot_break_the_chart() -> None:
    wild = forecast(run("<b>&\x07", at(1), at(1), at(2)))

    assert parse(draw_day(wild, date(2027, 3, 1))).tag == f"{SVG}svg"
