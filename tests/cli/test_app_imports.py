"""A module that a command imports declares; what it runs or queues at its top is refused."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from tests.support import preloaded
from tests.support.preloaded import TRAX

if TYPE_CHECKING:
    from pathlib import Path

JOBS = """
import asyncio
from sqlalchemy import create_engine
from trax import Trax, every

app = Trax()

@app.train
def greet(name: str) -> str:
    return f"Hello, {name}!"

app.schedule(greet, "greet-ada", "Ada", every(minutes=5))
"""
GUARDED = '\nif __name__ == "__main__":\n    print(app.sync.run(greet, "Grace"))\n'
CALLS = {
    "sync.run": 'app.sync.run(greet, "Grace")',
    "sync.queue": 'app.sync.queue(greet, "Grace")',
    "sync.trigger": 'app.sync.trigger("greet-ada")',
    "run": 'asyncio.run(app.run(greet, "Grace"))',
    "queue": 'asyncio.run(app.queue(greet, "Grace"))',
    "serve": "asyncio.run(app.serve())",
    "settings": "asyncio.run(app.settings.update(max_active_jobs=3))",
    "transaction": (
        'with create_engine("sqlite:///trax.db").begin() as connection:\n'
        '    app.sync.queue(greet, "Grace", connection=connection)'
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("command", ["run", "plan", "lint"])
def test_a_call_at_the_top_of_a_module_is_refused_by_every_command(
    command: str, call: str, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(JOBS + call, encoding="utf-8")

    ended = preloaded.run([TRAX, command, "jobs.py:app"], cwd=tmp_path)

    line = len((JOBS + call).splitlines())
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"trax: jobs.py:{line}: the app is used while a trax command imports")
    assert 'put calls that run or queue jobs under `if __name__ == "__main__":`' in ended.stderr
    assert not any(file.stat().st_size for file in tmp_path.glob("trax.db"))


def test_a_guarded_call_runs_as_a_script_and_not_in_a_command(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(JOBS + GUARDED, encoding="utf-8")

    linted = preloaded.run([TRAX, "lint", "jobs.py:app"], cwd=tmp_path)
    no_database = not (tmp_path / "trax.db").exists()
    script = preloaded.run([sys.executable, "jobs.py"], cwd=tmp_path)

    assert (linted.returncode, linted.stdout, no_database) == (0, "no findings\n", True)
    assert (script.returncode, script.stdout) == (0, "Hello, Grace!\n")


def test_a_module_imported_by_a_process_for_cpu_trains_is_refused_the_same() -> None:
    from trax import Trax
    from trax.engine.open_store import refuse_opening
    from trax.errors import DefinitionError

    app = Trax("memory://")

    with refuse_opening("a process for cpu trains"), pytest.raises(DefinitionError) as refused:
        app.context.store.open_blocking()

    assert str(refused.value).startswith("the app is used while a process for cpu trains imports this module")
    app.context.store.open_blocking()
    app.close()
