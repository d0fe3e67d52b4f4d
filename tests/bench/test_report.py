"""The page of the benchmarks is what the figures say, and names everyone who is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from bench import peers, report
from bench.charts import Line, Value, draw_bars
from bench.contenders import ALL
from bench.figures import Sheet
from bench.options import Options

if TYPE_CHECKING:
    import pytest

RESULTS = report.load_published()
SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_is_current() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.build_page(RESULTS), (
        "run `make bench ARGS=report`"
    )


def test_the_charts_are_current() -> None:
    drawn = {path.name: path.read_text(encoding="utf-8") for path in report.PICTURES.glob("benchmark-*.svg")}

    assert drawn == report.build_charts(RESULTS), "run `make bench ARGS=report`"


def test_all_published_figures_are_of_one_day() -> None:
    assert report.select_newest_day(RESULTS) == RESULTS, "run `make bench ARGS=report`"


def test_the_page_describes_each_system() -> None:
    facts = report.TEMPLATE.read_text(encoding="utf-8")

    assert [one.name for one in ALL if f"| {one.name} |" not in facts.replace("**", "")] == []


def test_a_chart_has_a_text_alternative_and_colours_for_a_dark_page() -> None:
    lines = [Line("Trax", [Value(200, 150, 250)], is_ours=True), Line("a <peer>", [Value(7.25, 7, 8)])]

    drawn = draw_bars("Speed", "jobs a second", ["1 process"], lines)

    root = ET.fromstring(drawn)  # noqa: S314 - drawn here
    assert root.findtext(f"{SVG}title") == "Speed"
    assert root.findtext(f"{SVG}desc") == (
        "Speed, jobs a second: Trax 200 (1 process); a <peer> 7.2 (1 process)"
    )
    assert "prefers-color-scheme: dark" in drawn


def test_a_page_without_figures_reports_that_there_are_none() -> None:
    page = report.build_page({})

    assert "No figures yet" in page
    assert report.build_charts({}) == {}


def test_a_system_that_lost_jobs_or_did_not_end_is_shown_as_such() -> None:
    usual = {"seconds": 30.0, "rate": 800.0, "p99": 12.34, "dead rows": 5, "is stress": False}
    stress = usual | {"rate": 12.0, "p99": None, "dead rows": 70_000, "is stress": True}
    found: dict[str, Any] = {
        "phases": {"before": usual, "kill-worker": stress, "start-worker": usual, "after": usual},
        "recovery seconds": None,
        "left": 3,
        "lost": 1_204,
        "findings": 7,
        "exits": [0, -9],
    }
    head: dict[str, Any] = {"at": "2027-03-01", "machine": {}, "versions": {}, "goals": []}

    page = report.build_page({"public": head | {"figures": {"chaos_crash_recovery": {"Trax": found}}}})

    assert (
        "| chaos_crash_recovery | Trax | 800 | 12 | 800 | 12.3 | - | 12.3 | 70,000 | - | 3 | 1,204 | 7 |"
        " **no** |"
    ) in page


def test_figures_of_an_earlier_day_are_not_shown_beside_newer_ones() -> None:
    old, new = {"at": "2027-02-28"}, {"at": "2027-03-01"}

    assert report.select_newest_day({"peers": old, "drain": new, "idle": new}) == {"drain": new, "idle": new}
    assert report.select_newest_day({}) == {}


def test_a_goal_stands_once_with_the_figure_of_the_table_of_peers() -> None:
    head: dict[str, Any] = {"at": "2027-03-01", "machine": {}, "versions": {}, "figures": {}}
    name = "bulk enqueue, beside PgQueuer"
    goal = {"name": name, "goal": "at least 1.50 x", "met": True}
    results = {
        "peers": head | {"goals": [goal | {"figure": "1.71 x"}]},
        "enqueue": head | {"goals": [goal | {"figure": "1.55 x"}]},
    }

    page = report.build_page(results)

    assert page.count(name) == 1
    assert "1.71 x" in page


def test_the_run_of_all_peers_has_the_goals_beside_pgqueuer(capsys: pytest.CaptureFixture[str]) -> None:
    def figures(rate: float) -> dict[str, list[Any]]:
        drained = {"rate": rate, "worker_us": 8.0, "server_us": 18.0, "wal_bytes": 976.0}
        intake = {"bulk": 4 * rate, "single": rate / 10}
        return {"drain": [drained], "drain 2": [drained], "intake": [intake], "pickup": [[1e5 / rate]]}

    peers.add_goals(Sheet("peers", Options(quick=True)), figures(30_000.0), figures(15_000.0))

    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "met     50 groups, beside PgQueuer, 1 process: 2.00 x, goal at least 1.50 x",
        "met     50 groups, 2 processes, beside PgQueuer, 2 processes: 2.00 x, goal at least 1.25 x",
        "met     Python for each job: 8 µs, goal at most 30 µs",
        "met     server for each job: 18 µs, goal at most 40 µs",
        "met     WAL for each job: 976 bytes, goal at most 1,000 bytes",
        "met     bulk enqueue, beside PgQueuer: 2.00 x, goal at least 1.50 x",
        "met     single enqueue, beside PgQueuer: 2.00 x, goal at least 1.00 x",
        "met     pickup p50, beside PgQueuer: 3.3 ms, goal at most 6.7 ms",
    ]


def test_the_sizes_at_the_end_of_a_cleanup_are_shown() -> None:
    figures = {
        "seconds": 1_800.0,
        "inserted a second": 5_000.0,
        "deleted a second": 4_916.4,
        "admitted": 35_012,
        "visits": {"p99": {"alone": 0.0041, "beside": 0.0095}},
        "sizes": {"metadata": 1_250_000_000},
    }
    head: dict[str, Any] = {"at": "2027-03-01", "machine": {}, "versions": {}, "goals": []}

    page = report.build_page({"cleanup": head | {"figures": figures}})

    assert "For 30 min the database wrote 5,000 ended jobs per second" in page
    assert "| metadata | 1,250 MB |" in page
    assert "| visit to the gate, p99 | 4.1 | 9.5 |" in page
