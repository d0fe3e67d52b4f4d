from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.operator import Operator

from trax.cli import main
from trax.errors import AppImportError

if TYPE_CHECKING:
    from collections.abc import Generator

TRAX = Path(sys.executable).with_name("trax")
JOBS = """
from trax import Trax, every

app = Trax()

@app.train
def greet(name: str) -> None:
    print(f"Hello, {name}!", flush=True)

app.schedule(greet, "greet-ada", "Ada", every(hours=1))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", ["jobs.py:app", "jobs:app"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_schedule_runs_until_the_process_gets_a_signal(folder: Path, name: str, number: int) -> None:
    with subprocess.Popen(
        [TRAX, "run", name], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout
        assert running.stdout.readline() == "Hello, Ada!\n"

        running.send_signal(number)
        _, told = running.communicate(timeout=60)

    assert running.returncode == 0
    assert "1 train and 1 schedule on sqlite:///trax.db" in told
    assert "stopping" in told


def test_loaded_modules_are_exempt_from_garbage_collection(folder: Path) -> None:
    counting = JOBS.replace('f"Hello, {name}!"', "gc.get_freeze_count() > 10_000")
    (folder / "jobs.py").write_text(f"import gc\n{counting}", encoding="utf-8")

    with subprocess.Popen(
        [TRAX, "run", "jobs.py:app"], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout
        assert running.stdout.readline() == "True\n"
        running.terminate()


MORE = "; --debug shows the traceback"
POOR = f"poor.py:2: ModuleNotFoundError: No module named 'shop'{MORE}"
BROKEN = {
    "unread": ("app = Trax(\n", f"unread.py:1: SyntaxError: '(' was never closed{MORE}"),
    "poor": ("\nimport shop\n", POOR),
    "behind": ("import poor\n", POOR),
    "within": (
        "import json\n\ndef read() -> None:\n    json.loads('')\n\nread()\n",
        f"within.py:4: JSONDecodeError: Expecting value: line 1 column 1 (char 0){MORE}",
    ),
    "leaving": ("import sys\nsys.exit(0)\n", f"leaving.py:2: SystemExit: 0{MORE}"),
    "wrong": (
        "from trax import Trax\n\napp = Trax(max_active=3)\n",
        "wrong.py:3: there is no setting 'max_active'; did you mean 'max_active_jobs'?",
    ),
}


@pytest.fixture
def command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Generator[Operator]:
    """One in this process, in a folder whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("TRAX_APP", raising=False)
    for name, (source, _) in BROKEN.items():
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    before = set(sys.modules)
    yield Operator("", capsys)
    for name in {*BROKEN, "jobs"} - before:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("form", ["{}.py:app", "{}:app"])
def test_an_app_that_cannot_be_imported_is_reported_in_one_line_with_the_place(
    command_line: Operator, name: str, form: str
) -> None:
    told = command_line.plainly("lint", form.format(name))

    assert (told.code, told.err) == (2, f"trax: {BROKEN[name][1]}\n")
    with pytest.raises(AppImportError):  # Python shows the traceback of what nobody catches
        main(["lint", form.format(name), "--debug"])


def test_a_process_that_cannot_import_its_app_ends_with_one_line_or_at_length(tmp_path: Path) -> None:
    (tmp_path / "poor.py").write_text(BROKEN["poor"][0], encoding="utf-8")

    brief, at_length = (
        subprocess.run([TRAX, "lint", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        for words in (["poor:app"], ["poor:app", "--debug"])
    )

    assert (brief.returncode, brief.stdout, brief.stderr) == (2, "", f"trax: {POOR}\n")
    assert at_length.returncode == 1
    assert at_length.stderr.startswith("Traceback")


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "scheduler",
        "worker",
        "dashboard",
        "lint",
        "plan",
        "queue add greet --app",
        "import celery-beat",
    ],
)
def test_every_command_with_an_app_reports_where_its_import_fails(
    command_line: Operator, command: str
) -> None:
    told = command_line.plainly(*command.split(), "poor:app")

    assert (told.code, told.out, told.err) == (2, "", f"trax: {POOR}\n")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jobs.py:ap", "trax: jobs.py has no app named 'ap'; did you mean 'app'?"),
        ("job:app", "trax: module 'job' was not found here or on the Python path"),
        ("nojobs.py:app", "trax: file 'nojobs.py' does not exist"),
        ("jobs", "trax: invalid app 'jobs'; give module:app or file.py:app"),
        (None, "trax: no app given; give module:app or file.py:app, or set $TRAX_APP"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_missing_app_is_reported_in_one_line(command_line: Operator, name: str | None, said: str) -> None:
    told = command_line.plainly("run", *([name] if name else []))

    assert (told.code, told.err) == (1, said + "\n")
