"""The control room is served beside the jobs, or by itself with nothing but a database."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest
from tests.support.waiting import until

from trax.records import State
from trax.records.metadata import Ending, NewRun
from trax.store import Store, metadata, tallies
from trax.web.passwords import matches

if TYPE_CHECKING:
    from collections.abc import Generator

TRAX = Path(sys.executable).with_name("trax")
JOBS = """
from trax import Trax, every

app = Trax()

@app.train
def greet(name: str) -> str:
    return f"Hello, {name}!"

app.schedule(greet, "greet-ada", "Ada", every(hours=1))
"""
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TRAX_")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS, encoding="utf-8")
    return tmp_path


@contextmanager
def serving(folder: Path, *words: str, **environment: str) -> Generator[str]:
    """A process that serves; gives its address as the process tells it, and ends it as an operator does."""
    with subprocess.Popen(
        [TRAX, *words],
        cwd=folder,
        env={**CLEAN, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout
        try:
            for line in process.stdout:
                if found := re.search(r"on (http://[\w.:\[\]]+)", line):
                    yield found[1]
                    break
            else:
                raise AssertionError("it ended without serving")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    assert process.returncode == 0


def asked(address: str, path: str, body: Any = None, token: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    with urlopen(Request(f"{address}{path}", data, headers), timeout=30) as answer:  # noqa: S310
        return json.load(answer)


def ended(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TRAX, *words],
        cwd=folder,
        env={**CLEAN, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_jobs_and_their_control_room_share_a_process(folder: Path) -> None:
    with serving(folder, "run", "jobs.py:app", "--web", "0", "--log-format", "text") as address:
        done = asked(address, "/api/v1/trains/greet/run", {"input": "Eve"})
        workers = asked(address, "/api/v1/workers")

    assert (done["output"], len(workers)) == ("Hello, Eve!", 1)


def test_a_database_is_enough_for_a_dashboard(folder: Path) -> None:
    ended(folder, "db", "migrate", "--database-url", "sqlite:///trax.db")

    with serving(folder, "dashboard", "--port", "0", "--database-url", "sqlite:///trax.db") as address:
        entry = asked(address, "/api/v1/trains/greet/queue", {"input": "Eve"})
        audit = asked(address, "/api/v1/settings/reset", {"names": []})

    assert (entry["train"], entry["status"]) == ("greet", "queued")
    assert audit


def test_a_dashboard_adds_up_what_has_ended_where_no_scheduler_runs(folder: Path) -> None:
    address = f"sqlite:///{folder}/trax.db"
    store = Store(address)
    store.open()
    long_ago = datetime.now(UTC) - timedelta(hours=5)
    run = store.run(metadata.begin, NewRun(external_id="a", train="greet"), now=long_ago)
    ending = Ending(metadata_id=run, worker_id=None, state=State.COMPLETED)
    store.run(metadata.finish, [ending], now=long_ago)

    with serving(folder, "dashboard", "--port", "0", "--database-url", address):
        until(lambda: store.read(tallies.counted_to) is not None)
    store.close()


def test_with_the_apps_code_a_dashboard_runs_trains(folder: Path) -> None:
    with serving(folder, "dashboard", "jobs.py:app", "--port", "0") as address:
        done = asked(address, "/api/v1/trains/greet/run", {"input": "Eve"})

    assert done["output"] == "Hello, Eve!"


def test_the_demo_can_be_watched_in_a_browser(folder: Path) -> None:
    with serving(folder, "demo", "--seconds", "60", "--port", "0") as address:
        emails = asked(address, "/api/v1/groups/emails")

    assert emails["max_active_jobs"] == 3


@pytest.mark.parametrize(
    "words",
    [
        ("run", "jobs.py:app", "--web", "0", "--web-host", "0.0.0.0"),  # noqa: S104
        ("dashboard", "jobs.py:app", "--port", "0", "--host", "::"),
    ],
)
def test_a_door_to_the_world_needs_somebody_who_may_enter(folder: Path, words: tuple[str, ...]) -> None:
    refused = ended(folder, *words)

    assert refused.returncode == 1
    assert refused.stderr.startswith("trax: the control room would be open to anybody")
    assert "TRAX_WEB_TOKENS" in refused.stderr


def test_with_tokens_the_door_may_lead_to_the_world(folder: Path) -> None:
    secret = "a token of many letters"
    words = ("dashboard", "jobs.py:app", "--port", "0", "--host", "0.0.0.0")  # noqa: S104

    with serving(folder, *words, TRAX_WEB_TOKENS=f"ci:viewer:{secret}") as address:
        here = address.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        groups = asked(here, "/api/v1/groups", token=secret)

    assert groups["items"] == []


def test_a_port_that_is_taken_is_one_clear_line(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
        refused = ended(folder, "run", "jobs.py:app", "--web", port)

    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        f"trax: cannot listen on 127.0.0.1, port {port}: something listens there already; choose another port"
    ]


def test_a_password_is_hashed_for_the_configuration(folder: Path) -> None:
    told = subprocess.run(
        [TRAX, "dashboard", "--hash-password"],
        cwd=folder,
        input="open sesame\n",
        capture_output=True,
        text=True,
        check=True,
    )

    assert matches("open sesame", told.stdout.strip())
