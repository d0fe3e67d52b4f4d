"""The command of the soak works: a few seconds of it, with every fault, lose nothing and break nothing."""

from __future__ import annotations

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
    assert set(verdict.faults) == {"worker killed", "sessions ended", "database restarted"}
    assert {"scheduler: MB", "worker-1: files", "connections", "MB of metadata"} <= set(verdict.samples[-1])


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


def test_too_few_samples_say_nothing() -> None:
    assert soak.judge("worker-1: MB", [1.0] * 4 + [9.0] * 4) is None


def test_the_report_names_what_is_wrong() -> None:
    samples = [{"worker-1: MB": 50.0 + 10 * number} for number in range(12)]
    verdict = soak.Verdict(samples=samples, accepted=7, lost=[3], broken=["group limited is over its limit"])

    text = soak.report(verdict)

    assert not verdict.is_well
    assert "7 jobs accepted, 1 lost" in text
    assert "WRONG  worker-1: MB grew from 105.0 to 145.0, at most 118.2" in text
    assert "WRONG  group limited is over its limit" in text
    assert "WRONG  lost: [3]" in text
