"""The control room is served beside the jobs, or by itself with nothing but a database."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest
from tests.support import preloaded
from tests.support.preloaded import TRAX, PreloadedProcess
from tests.support.results import run_result
from tests.support.waiting import until

from trax.cli import main
from trax.records.metadata import NewRun
from trax.store import Store, stats
from trax.store.runs import metadata
from trax.web.access import Access, matches

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

JOBS = """
from trax import Trax, every

app = Trax()

@app.train
def greet(name: str) -> str:
    return f"Hello, {name}!"

app.schedule(greet, "greet-ada", "Ada", every(hours=1))
"""
ADDRESS = r" on (http://[\w.:\[\]]+)"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TRAX_")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS, encoding="utf-8")
    return tmp_path


@contextmanager
def serving(folder: Path, *words: str, shows: str = ADDRESS, **environment: str) -> Generator[str]:
    """A process that serves; gives its address as the process tells it, and ends it as an operator does."""
    with PreloadedProcess(
        [TRAX, *words],
        cwd=folder,
        env={**CLEAN, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout
        try:
            for line in process.stdout:
                if found := re.search(shows, line):
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


def visit(link: str, path: str) -> Any:
    """What a browser finds that opens a link and goes on to a path."""
    browser = build_opener(HTTPCookieProcessor())
    with browser.open(link, timeout=30) as shown:
        assert "token" not in shown.url
    with browser.open(link.partition("/login")[0] + path, timeout=30) as answer:
        return json.load(answer)


def status_of(address: str) -> int:
    try:
        with urlopen(address, timeout=30) as answer:  # noqa: S310
            return answer.status
    except HTTPError as refused:
        with refused:
            return refused.code


def ended(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return preloaded.run([TRAX, *words], cwd=folder, env={**CLEAN, **environment}, timeout=60)


def test_jobs_and_their_dashboard_share_a_process(folder: Path) -> None:
    words = ("run", "jobs.py:app", "--web", "0", "--insecure-local", "--log-format", "text")
    with serving(folder, *words) as address:
        done = asked(address, "/api/v1/trains/greet/run", {"input": "Eve"})
        workers = asked(address, "/api/v1/workers")

    assert (done["output"], len(workers["items"])) == ("Hello, Eve!", 1)


def test_a_database_is_enough_for_a_dashboard(folder: Path) -> None:
    ended(folder, "db", "migrate", "--database-url", "sqlite:///trax.db")

    words = ("dashboard", "--port", "0", "--insecure-local", "--database-url", "sqlite:///trax.db")
    with serving(folder, *words) as address:
        entry = asked(address, "/api/v1/trains/greet/queue", {"input": None})
        with pytest.raises(HTTPError, match="422"):  # no live server says which of its fields are secret
            asked(address, "/api/v1/trains/greet/queue", {"input": "Eve"})
        audit = asked(address, "/api/v1/settings/reset", {"names": []})

    assert (entry["train"], entry["status"]) == ("greet", "queued")
    assert audit


def test_a_dashboard_adds_up_what_has_ended_where_no_scheduler_runs(folder: Path) -> None:
    address = f"sqlite:///{folder}/trax.db"
    store = Store(address)
    store.open()
    long_ago = datetime.now(UTC) - timedelta(hours=5)
    run = store.run(metadata.begin, NewRun(external_id="a", train="greet"), now=long_ago)
    ending = run_result(run)
    store.run(metadata.finish, [ending], now=long_ago)

    with serving(folder, "dashboard", "--port", "0", "--database-url", address):
        until(lambda: store.read(stats.load_totals_end) is not None)
    store.close()


def test_with_the_apps_code_a_dashboard_runs_trains(folder: Path) -> None:
    with serving(folder, "dashboard", "jobs.py:app", "--port", "0", "--insecure-local") as address:
        done = asked(address, "/api/v1/trains/greet/run", {"input": "Eve"})

    assert done["output"] == "Hello, Eve!"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "jobs.py:app", "--web", "0", "--log-format", "text"),
        ("dashboard", "jobs.py:app", "--port", "0"),
        ("demo", "--seconds", "60", "--port", "0"),
    ],
    ids=["run", "dashboard", "demo"],
)
def test_a_start_without_access_prints_a_link_that_opens_the_dashboard_once(
    folder: Path, words: tuple[str, ...]
) -> None:
    with serving(folder, *words, shows=r": (http://\S+/login\?token=[\w-]+)") as link:
        address = link.partition("/login")[0]
        refused = status_of(address + "/api/v1/groups")
        entered, groups = visit(link, "/api/v1/groups?limit=200"), status_of(link)

    assert refused == 401
    assert "items" in entered
    assert groups == 403


def test_another_link_is_printed_by_a_command(folder: Path) -> None:
    with serving(folder, "run", "jobs.py:app", "--web", "0", "--log-format", "text") as address:
        made = ended(folder, "sessions", "link", "--url", address)
        entered = visit(made.stdout.strip(), "/api/v1/sessions")
        listed = ended(folder, "sessions", "list", "--json")
        (session,) = json.loads(listed.stdout)
        over = ended(folder, "sessions", "end", str(session["id"]))
        again = ended(folder, "sessions", "end", str(session["id"]))
        audit = json.loads(ended(folder, "audit", "list", "--json").stdout)

    assert [one["user"] for one in entered["items"]] == ["local"]
    assert (session["user"], session["means"]) == ("local", "link")
    assert (over.returncode, over.stdout) == (0, "ended: 1 of 1\n")
    assert (again.returncode, again.stdout) == (1, "ended: 0 of 1\n")
    actions = [one["action"] for one in audit if one["noun"] == "session"]
    assert actions[-3:] == ["sessions.end", "sessions.begin", "sessions.create_link"]


@pytest.mark.parametrize("words", [(), ("7", "--all"), ("--user", "ada", "--all")])
def test_ending_sessions_without_a_selection_is_refused(folder: Path, words: tuple[str, ...]) -> None:
    refused = ended(folder, "sessions", "end", *words)

    assert refused.returncode == 2
    assert "No sessions selected: give ids, --user or --all." in refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("run", "jobs.py:app", "--web", "0", "--web-host", "0.0.0.0"),  # noqa: S104
        ("dashboard", "jobs.py:app", "--port", "0", "--host", "0.0.0.0"),  # noqa: S104
    ],
)
def test_insecure_local_is_refused_at_a_public_address(folder: Path, words: tuple[str, ...]) -> None:
    token = {"TRAX_WEB_TOKENS": "ci:viewer:a token of many letters"}

    refused = ended(folder, *words, "--insecure-local", **token)

    assert refused.returncode == 1
    assert refused.stderr.startswith("trax: insecure_local makes every process of this machine an operator")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "jobs.py:app", "--web", "0", "--web-host", "0.0.0.0"),  # noqa: S104
        ("dashboard", "jobs.py:app", "--port", "0", "--host", "::"),
    ],
)
def test_a_dashboard_at_a_public_address_needs_configured_access(
    folder: Path, words: tuple[str, ...]
) -> None:
    refused = ended(folder, *words)

    assert refused.returncode == 1
    assert refused.stderr.startswith("trax: the dashboard would be open to anyone")
    assert "TRAX_WEB_TOKENS" in refused.stderr


def test_with_tokens_the_door_may_lead_to_the_world(folder: Path) -> None:
    secret = "a token of many letters"
    words = ("dashboard", "jobs.py:app", "--port", "0", "--host", "0.0.0.0")  # noqa: S104

    with serving(folder, *words, TRAX_WEB_TOKENS=f"ci:viewer:{secret}") as address:
        here = address.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        groups = asked(here, "/api/v1/groups", token=secret)

    assert groups["items"] == []


def test_a_port_in_use_is_one_clear_line(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
        refused = ended(folder, "run", "jobs.py:app", "--web", port)

    assert refused.returncode == 1
    where = f"127.0.0.1, port {port}"
    assert refused.stderr.splitlines() == [
        f"trax: cannot listen on {where}: the port is already in use; choose another host or port"
    ]


def test_a_password_is_hashed_for_the_configuration(folder: Path) -> None:
    told = preloaded.run(
        [TRAX, "dashboard", "--hash-password"], cwd=folder, input="open sesame, please\n", check=True
    )

    assert matches("open sesame, please", told.stdout.strip())


@pytest.mark.parametrize(
    "password",
    [
        "",
        "open sesame",
        "aaaaaaaaaaaaaaa",
        "123456789012",
        "abcdefghijklmnop",
        "passwordpassword",
        "x" * 1001,
    ],
)
def test_a_password_that_is_easy_to_guess_is_not_hashed(
    password: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))

    with pytest.raises(SystemExit) as ended:
        main(["dashboard", "--hash-password"])

    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (1, "")
    assert "password" in told.err
    assert not password or password not in told.err


def test_a_token_is_created_with_the_hash_to_configure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["dashboard", "--create-token"])

    secret, hashed = (line.rpartition(": ")[2] for line in capsys.readouterr().out.splitlines())
    configured = Access.from_environment({"TRAX_WEB_TOKENS": f"ci:operator:{hashed}"})
    assert (len(secret), secret in hashed) == (43, False)
    assert configured.holder_of(secret, datetime(2027, 3, 1, tzinfo=UTC)) is not None
