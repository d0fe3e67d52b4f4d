from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.support import preloaded
from tests.support.preloaded import TRAX

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

JOBS = """
from trax import Trax

app = Trax()
app.group("people", max_active_jobs=LIMIT)
"""


def lint(limit: int, folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir()  # of its own: bytecode of a file of the same second and size would be taken for it
    (folder / "jobs.py").write_text(JOBS.replace("LIMIT", str(limit)), encoding="utf-8")
    words = [TRAX, "lint", "jobs:app"]
    return preloaded.run(words, cwd=folder)


def test_linting_needs_no_database_and_exits_by_what_it_found(tmp_path: Path) -> None:
    clean = lint(1, tmp_path / "clean")
    faulty = lint(0, tmp_path / "faulty")

    assert (clean.returncode, clean.stdout) == (0, "no findings\n")
    assert (faulty.returncode, faulty.stdout.count("\n")) == (1, 1)
    assert not list(tmp_path.glob("*/trax.db"))


SOUND = """
from pydantic import BaseModel
from trax import Trax

class Hello(BaseModel):
    name: str

app = Trax("sqlite:///trax.db")

@app.train
async def greet(hello: Hello) -> str:
    return hello.name
"""
CHANGED = SOUND.replace("name: str", "name: str\n    town: str")


def before_a_deploy(folder: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "jobs.py").write_text(code, encoding="utf-8")
    command = [TRAX, "lint", "jobs:app", "--queued", *words]
    return preloaded.run(command, cwd=folder)


def test_queued_inputs_are_checked_with_new_code_before_it_is_deployed(tmp_path: Path) -> None:
    nothing_there = before_a_deploy(tmp_path, SOUND)
    for name in ("Ada", "Bob"):
        words = [TRAX, "queue", "add", "greet", f'{{"name": "{name}"}}', "--app", "jobs:app"]
        preloaded.run(words, check=True, cwd=tmp_path)
    same = before_a_deploy(tmp_path, SOUND)
    changed = before_a_deploy(tmp_path, CHANGED)
    some = before_a_deploy(tmp_path, CHANGED, "--most", "1", "--json")
    gone = before_a_deploy(tmp_path, SOUND.replace("greet", "welcome"))

    assert (nothing_there.returncode, same.returncode) == (0, 0), same.stderr
    assert same.stdout == "no findings\nread all 2 queued inputs\n"
    assert changed.returncode == 1
    assert changed.stdout.splitlines() == [
        "train 'greet': 2 queued inputs cannot be decoded: town: Field required (entry 1)",
        "read all 2 queued inputs",
    ]
    found = json.loads(some.stdout)["queued"]
    assert (found["count"], found["is_all"]) == (1, False)
    assert found["unreadable"] == [
        {"train": "greet", "fields": ["town: Field required"], "count": 1, "example": "entry 1"}
    ]
    assert (gone.returncode, gone.stdout.count("this code does not define the train")) == (1, 1)


ODD = """
from trax import Trax

class Odd: ...

app = Trax(SETTINGS)

@app.train
def odd(number: int) -> Odd:
    return Odd()

@app.train
def plain(number: int) -> dict[str, int]:
    return {"number": number}
"""


def test_an_output_that_no_record_can_have_is_found(tmp_path: Path) -> None:
    for name, settings in {"saved": "", "unsaved": "save_outputs=False"}.items():
        (tmp_path / f"{name}.py").write_text(ODD.replace("SETTINGS", settings), encoding="utf-8")

    saved = preloaded.run([TRAX, "lint", "saved:app"], cwd=tmp_path)
    unsaved = preloaded.run([TRAX, "lint", "unsaved:app"], cwd=tmp_path)

    assert (saved.returncode, saved.stdout.count("\n")) == (1, 1)
    assert saved.stdout.startswith("the output of train 'odd' is Odd, which cannot be JSON: ")
    assert "no record will have it: return a model, a dataclass, plain data or None" in saved.stdout
    assert (unsaved.returncode, unsaved.stdout) == (0, "no findings\n")
