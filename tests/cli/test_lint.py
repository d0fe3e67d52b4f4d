from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TRAX = Path(sys.executable).with_name("trax")
JOBS = """
from trax import Trax

app = Trax()
app.group("people", max_active_jobs=LIMIT)
"""


def lint(limit: int, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "jobs.py").write_text(JOBS.replace("LIMIT", str(limit)), encoding="utf-8")
    words = [TRAX, "lint", "jobs:app"]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)


def test_linting_needs_no_database_and_exits_by_what_it_found(tmp_path: Path) -> None:
    clean = lint(1, tmp_path)
    faulty = lint(0, tmp_path)

    assert (clean.returncode, clean.stdout) == (0, "nothing to complain about\n")
    assert (faulty.returncode, faulty.stdout.count("\n")) == (1, 1)
    assert not (tmp_path / "trax.db").exists()
