"""The command of the soak works: a few seconds of it, with every fault, lose nothing and break nothing."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from bench import soak
from bench.processes import PROC
from trax.testing.postgres import postgres_server

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 12.0


@pytest.mark.postgresql
@pytest.mark.skipif(not PROC.is_dir(), reason="it reads /proc")
async def test_a_fleet_that_is_killed_and_cut_off_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAX_DATABASE_URL", "")
    with postgres_server(durable=True) as server:
        verdict = await soak.soak(server, tmp_path, seconds=SECONDS)

    assert (verdict.lost, verdict.broken) == ([], []), (tmp_path / "log").read_text(encoding="utf-8")[-4000:]
    assert verdict.accepted > 0
    assert set(verdict.faults) == set(soak.FAULTS)
    assert sum(verdict.verifications) > verdict.accepted
    assert {"scheduler: MB", "worker-1: files", "connections", "MB of metadata"} <= set(verdict.samples[-1])


def test_only_a_long_soak_has_an_outage_and_the_usual_faults_continue_after_it() -> None:
    long, short = (list(islice(soak.plan_faults(60 * minutes, every=60), minutes)) for minutes in (30, 12))

    assert long[14] == soak.OUTAGE
    assert Counter(long) == Counter(
        {"worker killed": 10, "sessions ended": 10, "database restarted": 9, soak.OUTAGE: 1}
    )
    assert set(short) == set(soak.FAULTS)


@pytest.mark.parametrize(
    ("name", "last", "is_wrong"),
    [
        ("worker-1: MB", 104, False),
        ("worker-1: MB", 120, True),
        ("scheduler: threads", 103, False),
        ("scheduler: threads", 104, True),
        ("MB of metadata", 120, False),
        ("MB of metadata", 140, True),
    ],
)
def test_the_last_third_may_not_exceed_the_middle_one(name: str, last: float, is_wrong: bool) -> None:
    figures = [10.0] * 4 + [100.0] * 4 + [last] * 4

    assert (soak.judge(name, figures) is not None) is is_wrong


def test_tables_that_have_not_reached_their_size_are_not_judged() -> None:
    samples = [{"MB of log": 10.0 * number, "worker-1: tasks": 9.0} for number in range(12)]

    assert soak.Verdict(samples=samples).grown
    assert not soak.Verdict(samples=samples, has_steady_tables=False).grown


def test_a_trend_of_too_few_samples_is_not_judged() -> None:
    assert soak.judge("worker-1: MB", [1.0] * 4 + [9.0] * 4) is None


def test_the_report_names_what_is_wrong() -> None:
    samples = [{"worker-1: MB": 50.0 + 10 * number} for number in range(12)]
    verdict = soak.Verdict(samples=samples, accepted=7, lost=[3], verifications=[5, 9, 8])
    for _ in range(2):
        verdict.add_problems(["group limited is over its limit"])

    text = soak.report(verdict)

    assert not verdict.is_well
    assert "7 jobs accepted, 1 lost" in text
    assert "WRONG  worker-1: MB grew from 105.0 to 145.0, at most 118.2" in text
    assert "verified 3 times, 8 runs each" in text
    assert text.count("WRONG  group limited is over its limit") == 1
    assert "WRONG  lost: [3]" in text
