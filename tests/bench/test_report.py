"""The page of the benchmarks is what the figures say, and names everyone who is measured."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bench import report
from bench.charts import Line, Value, draw_bars
from bench.contenders import ALL
from bench.figures import PUBLISHED, load_results

RESULTS = {name: found for name in report.BENCHES if (found := load_results(PUBLISHED, name))}
SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_is_current() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.build_page(RESULTS), (
        "run `make bench ARGS=report`"
    )


@pytest.mark.parametrize(("file", "text"), report.build_charts(RESULTS).items())
def test_a_chart_is_current(file: str, text: str) -> None:
    assert (report.PICTURES / file).read_text(encoding="utf-8") == text, "run `make bench ARGS=report`"


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


def test_the_sizes_after_a_cleanup_are_shown_beside_those_it_kept_steady() -> None:
    figures = {
        "seconds": 1_800.0,
        "inserted a second": 5_000.0,
        "deleted a second": 4_916.4,
        "admitted": 35_012,
        "visits": {"p99": {"alone": 0.0041, "beside": 0.0095}},
        "sizes": {"metadata": 1_250_000_000},
        "growth": {"metadata": 1.037},
        "findings": 0,
    }
    head: dict[str, Any] = {"at": "2027-03-01", "machine": {}, "versions": {}, "goals": []}

    page = report.build_page({"cleanup": head | {"figures": figures}})

    assert "For 30 min the database wrote 5,000 ended jobs per second" in page
    assert "| metadata | 1,250 MB | 1.04 x |" in page
    assert "| visit to the gate, p99 | 4.1 | 9.5 |" in page
