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
from trax import Trax, every

app = Trax(job_dispatcher_enabled=False)

@app.train
def greet(name: str) -> None:
    raise AssertionError(name)

app.schedule(greet, "greet-ada", "Ada", every(hours=1))
entry = app.sync.queue(greet, "Ada")
print(entry.id)
app.close()
"""


def run(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return preloaded.run(words, cwd=folder)


def test_why_explains_why_an_entry_waits(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(JOBS, encoding="utf-8")
    entry = run(sys.executable, "jobs.py", folder=tmp_path).stdout.strip()

    by_database = run(TRAX, "why", entry, folder=tmp_path)
    (tmp_path / "jobs.py").write_text(JOBS.partition("entry =")[0], encoding="utf-8")
    by_app = run(TRAX, "why", entry, "--app", "jobs:app", "--json", folder=tmp_path)
    unknown = run(TRAX, "why", "greet-ada", folder=tmp_path)

    assert (by_database.returncode, by_database.stdout) == (0, "no worker is alive\n")
    assert [reason["code"] for reason in json.loads(by_app.stdout)["reasons"]] == [
        "dispatcher_off",
        "no_worker",
    ]
    assert (unknown.returncode, unknown.stderr) == (1, "trax: there is no manifest 'greet-ada'\n")


def test_why_creates_no_database(tmp_path: Path) -> None:
    asked = run(TRAX, "why", "greet-ada", folder=tmp_path)

    assert asked.returncode == 1
    assert asked.stderr.startswith("trax: database sqlite:///trax.db does not exist")
    assert list(tmp_path.iterdir()) == []


def test_why_with_an_app_creates_no_database(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(JOBS.partition("entry =")[0], encoding="utf-8")

    asked = run(TRAX, "why", "greet-ada", "--app", "jobs.py:app", folder=tmp_path)

    assert asked.stderr == "trax: database sqlite:///trax.db does not exist; run `trax db migrate`\n"
    assert not (tmp_path / "trax.db").exists()
