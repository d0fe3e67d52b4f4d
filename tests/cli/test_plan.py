from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tests.support import preloaded
from tests.support.preloaded import TRAX

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

JOBS = """
from trax import Trax, cron

app = Trax()

@app.train
def greet(name: str) -> None:
    raise AssertionError(name)

seven = cron("0 7 * * *", tz="Europe/Berlin")
app.schedule(greet, "ada", "Ada", seven, start="next_occurrence", group="people")
"""
LONGER = "\n"
"""Bytecode of a file of the same second and size would be taken for that of the new one."""
SEED = """
import asyncio
from jobs import app

async def seed():
    await app.start("scheduler")
    await app.stop()

asyncio.run(seed())
"""


def run(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return preloaded.run(words, cwd=folder)


def test_a_plan_shows_what_a_start_would_change(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(JOBS, encoding="utf-8")

    first = run(TRAX, "plan", "jobs:app", folder=tmp_path)
    made_by_asking = (tmp_path / "trax.db").exists()
    run(sys.executable, "-c", SEED, folder=tmp_path)
    settled = run(TRAX, "plan", "jobs:app", folder=tmp_path)
    (tmp_path / "jobs.py").write_text(JOBS.replace("0 7", "0 8") + LONGER, encoding="utf-8")
    changed = run(TRAX, "plan", "jobs:app", folder=tmp_path)
    as_json = run(TRAX, "plan", "jobs:app", "--json", folder=tmp_path)

    assert (first.returncode, made_by_asking) == (2, False)
    assert first.stdout.startswith("+ group people\n+ manifest ada\n    runs at ")
    assert " 07:00:00 CE" in first.stdout
    assert (settled.returncode, settled.stdout) == (0, "nothing would change\n")
    assert changed.stdout.startswith("~ manifest ada\n    cron_expression: '0 7 * * *' -> '0 8 * * *'\n")
    assert json.loads(as_json.stdout)["changes"][0]["differences"] == [
        {"name": "cron_expression", "old": "0 7 * * *", "new": "0 8 * * *"}
    ]


def test_a_plan_shows_what_a_retirement_affects_and_what_is_renamed(tmp_path: Path) -> None:
    more = JOBS + 'app.schedule(greet, "bob", "Bob", "on_demand").include(greet, "after-bob", "After")\n'
    (tmp_path / "jobs.py").write_text(more, encoding="utf-8")
    run(sys.executable, "-c", SEED, folder=tmp_path)
    run(TRAX, "manifests", "trigger", "bob", folder=tmp_path)
    renamed = JOBS.replace('"ada"', '"lovelace"').replace("group=", 'renamed_from="ada", group=')
    (tmp_path / "jobs.py").write_text(renamed, encoding="utf-8")

    plan = run(TRAX, "plan", "jobs:app", folder=tmp_path)

    assert plan.stdout.splitlines() == [
        "- manifest bob: retired; its history stays",
        "    queued entries to cancel: 1",
        "    dependent manifests that will no longer run: after-bob",
        "- manifest after-bob: retired; its history stays",
        "~ manifest lovelace: renamed; its history is kept",
        "    external_id: 'ada' -> 'lovelace'",
    ]
