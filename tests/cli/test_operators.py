"""Behaviour that all commands of an operator share."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import Railway
from tests.support import preloaded
from tests.support.operator import Operator, publish
from tests.support.preloaded import TRAX, PreloadedProcess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Typing(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["manifests", "show", "nobody"], 1, "trax: there is no manifest 'nobody'"),
        (["manifests", "trigger", "nobody"], 1, "trax: there is no manifest 'nobody'"),
        (["groups", "trigger", "nobody"], 1, "trax: there is no group 'nobody'"),
        (["groups", "cancel", "nobody", "--yes"], 1, "trax: there is no group 'nobody'"),
        (["queue", "show", "9"], 1, "trax: there is no entry 9 in the work queue"),
        (["queue", "add", "trax.mine", "1"], 1, "trax: names that start with 'trax.' are reserved"),
        (["executions", "logs", "9"], 1, "trax: there is no execution 9"),
        (["executions", "rerun", "9"], 1, "trax: there is no execution 9"),
        (["dead-letters", "show", "9"], 1, "trax: there is no dead letter 9"),
        (["settings", "set", "max_active=1"], 1, "trax: there is no setting 'max_active'; did you mean"),
        (["settings", "get", "listen_url"], 1, "trax: setting 'listen_url' is set in code or environment"),
        (["queue", "add", "greet", "{"], 2, "trax: The input is not JSON"),
        (["queue", "add", "greet", "--delay", "soon"], 2, "trax: Invalid value for --delay"),
        (
            ["queue", "add", "greet", "--delay", "-5"],
            2,
            "trax: Invalid value for --delay: it must be from 0 s to 68 years.",
        ),
        (
            ["queue", "add", "greet", "--delay", "nan"],
            2,
            "trax: Invalid value for --delay: expected a duration",
        ),
        (["manifests", "trigger", "greet-ada", "--delay", "soon"], 2, "trax: Invalid value for --delay"),
        (
            ["manifests", "trigger", "greet-ada", "--delay", "-1"],
            2,
            "trax: Invalid value for --delay: it must be",
        ),
        (
            ["manifests", "trigger", "greet-ada", "--delay", "inf"],
            2,
            "trax: Invalid value for --delay: expected a duration",
        ),
        (
            ["manifests", "trigger", "greet-ada", "--delay", "1e30"],
            2,
            "trax: Invalid value for --delay: expected a duration",
        ),
        (["executions", "list", "--since", "yesterday"], 2, "trax: Invalid value for --since"),
        (
            ["executions", "list", "--since", "0001-01-01T00:00+14:00"],
            2,
            "trax: Invalid value for --since: expected a time",
        ),
        (["queue", "list", "--status", "waiting"], 2, 'trax: Invalid value "waiting" for --status.'),
        (
            ["queue", "cancel"],
            2,
            "trax: No entries selected: give their ids. See `trax queue cancel --help`.",
        ),
        (["executions", "cancel"], 2, "trax: No executions selected: give their ids."),
        (["executions", "list", "--limit", "0"], 2, 'trax: Invalid value "0" for --limit.'),
        (["dead-letters", "requeue"], 2, "trax: No dead letters selected: give ids, --fingerprint"),
        (["dead-letters", "requeue", "1", "--all"], 2, "trax: No dead letters selected"),
        (["groups", "set", "etl"], 2, "trax: Nothing to set: give --max-active-jobs"),
        (["settings", "set", "max_active_jobs"], 2, "trax: Invalid change 'max_active_jobs'"),
    ],
)
def test_an_error_is_one_line_and_a_stable_exit_code(
    operator: Operator, trains: Railway, words: Sequence[str], code: int, said: str
) -> None:
    asyncio.run(trains.runs())

    told = operator(*words)

    assert (told.code, told.out) == (code, "")
    assert told.err.startswith(said)
    assert told.err.count("\n") == 1


def test_listing_creates_no_database(operator: Operator, tmp_path: Path) -> None:
    told = operator("queue", "list")

    assert (told.code, list(tmp_path.iterdir())) == (1, [])
    assert "run `trax db migrate`" in told.err


@pytest.mark.parametrize(
    "words",
    [
        ["manifests", "delete", "greet-ada"],
        ["groups", "cancel", "etl"],
        ["dead-letters", "requeue", "--all"],
        ["dead-letters", "ack", "--all", "--note", "known"],
        ["settings", "reset"],
    ],
)
def test_a_bulk_change_needs_a_confirmation(
    operator: Operator, trains: Railway, monkeypatch: pytest.MonkeyPatch, words: Sequence[str]
) -> None:
    asyncio.run(trains.runs(0))

    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    unasked = operator(*words)
    monkeypatch.setattr("sys.stdin", Typing("n\n"))
    declined = operator(*words)
    monkeypatch.setattr("sys.stdin", Typing("y\n"))
    agreed = operator(*words)

    assert (unasked.code, declined.code, agreed.code) == (2, 1, 0)
    assert "There is no terminal to confirm on; give --yes." in unasked.err
    assert declined.err.endswith("[y/N] trax: cancelled; nothing was changed\n")
    assert (unasked.out, declined.out) == ("", "")


def test_text_of_a_job_cannot_control_the_terminal(operator: Operator, trains: Railway) -> None:
    asyncio.run(trains.runs())
    publish(operator.url, "complain")
    operator("queue", "add", "complain", json.dumps("\x1b[2J\tgone\n\u202eagain\x9b\u2028"))
    asyncio.run(trains.runs())

    listed = operator("executions", "list", "--state", "failed")
    shown = operator("executions", "show", "3")
    followed = operator("executions", "follow", "3")
    as_json = operator("executions", "show", "3", "--json")

    assert listed.lines[0][-1] == r"\x1b[2J gone \u202eagain\x9b\u2028"
    for told in (listed, shown, followed, as_json):
        assert not set(told.out) & set("\x1b\u202e\x9b\u2028")
        assert r"\u202e" in told.out
    assert json.loads(as_json.out)["failure_reason"] == "\x1b[2J\tgone\n\u202eagain\x9b\u2028"


@pytest.mark.parametrize(
    "words",
    [
        ["executions", "show", "99999999999999999999"],
        ["executions", "show", "9" * 5000],
        ["executions", "show", "\x1b[2J"],
        ["executions", "show", "1", "--\x1b[2J"],
        ["executions", "list", "--before", "99999999999999999999"],
        ["executions", "list", "--parent-id", "-1"],
        ["executions", "list", "--since", "9999-12-31T23:59-12:00"],
        ["executions", "list", "--until", "0001-01-01"],
        ["executions", "list", "--train", "x" * 300],
        ["executions", "logs", "1", "--after", "99999999999999999999"],
        ["executions", "cancel", "1", "99999999999999999999"],
        ["dead-letters", "show", "99999999999999999999"],
        ["dead-letters", "list", "--before", "99999999999999999999"],
        ["audit", "undo", "99999999999999999999"],
        ["why", "99999999999999999999"],
        ["why", "run:" + "9" * 30],
        ["why", "9" * 5000],
        ["why", "\udcff\x1b"],
        ["queue", "add", "greet", "[" * 100_000],
        ["queue", "add", "greet", '"\\ud800"'],
        ["queue", "add", "greet", "NaN"],
        ["queue", "add", "greet", "1", "--delay", "1e300"],
        ["queue", "add", "greet", "1", "--delay", "9" * 400],
        ["queue", "add", "greet", "1", "--max-retries", "99999999999999999999"],
        ["queue", "add", "greet", "1", "--group", "\x1b[2J"],
        ["manifests", "trigger", "greet-ada", "--delay", "99999999999999999999"],
        ["groups", "set", "etl", "--max-active-jobs", "99999999999999999999"],
        ["groups", "set", "etl", "--priority", "32"],
        ["groups", "trigger", "\udcff"],
        ["settings", "set", "local_worker_count=99999999999999999999"],
        ["settings", "set", "default_job_timeout=1e300"],
        ["settings", "set", "self=1"],
        ["settings", "set", "max_active_jobs=" + "[" * 100_000],
    ],
    ids=lambda words: " ".join(words)[:40].encode("ascii", "backslashreplace").decode(),
)
def test_no_value_is_answered_with_a_traceback(
    operator: Operator, trains: Railway, words: Sequence[str]
) -> None:
    asyncio.run(trains.runs())

    told = operator(*words)

    assert told.code in {1, 2}
    assert told.err.startswith("trax: ")
    assert told.err.removesuffix("\n").isprintable()
    assert len(told.err) < 1100


@pytest.mark.parametrize("command", ["worker", "run"])
@pytest.mark.parametrize(
    "option", ["--concurrency=99999999999999999999", "--concurrency=0", "--concurrency=10001"]
)
def test_a_server_refuses_more_slots_than_it_can_have(operator: Operator, command: str, option: str) -> None:
    told = operator.plainly(command, "nowhere:app", option)

    assert told.code == 2
    assert "for --concurrency. Must be " in told.err


def test_a_terminal_shows_a_table_and_a_pipe_plain_lines(trains: Railway, operator: Operator) -> None:
    asyncio.run(trains.runs())

    words = [str(TRAX), "manifests", "list", "--database-url", operator.url]
    seen = in_terminal(words)
    piped = preloaded.run(words, check=True).stdout

    assert "\x1b[1mexternal id" in seen
    assert "greet-ada" in seen
    assert "\t" not in seen
    assert piped.splitlines()[1].startswith("greet-ada\tgreet\tetl\tevery 1 h\tyes\t0\t2027-03-01 13:00:00Z")


def in_terminal(words: Sequence[str]) -> str:
    ours, theirs = pty.openpty()
    wide = {**os.environ, "COLUMNS": "160", "TERM": "xterm-256color"}
    with PreloadedProcess(words, stdin=theirs, stdout=theirs, stderr=theirs, env=wide) as process:
        os.close(theirs)
        seen = b""
        while part := _read(ours):
            seen += part
    os.close(ours)
    assert process.returncode == 0
    return seen.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side has hung up
        return b""


def test_a_closed_pipe_is_no_error(trains: Railway, operator: Operator) -> None:
    asyncio.run(trains.runs())

    reading, writing = os.pipe()
    os.close(reading)
    words = [TRAX, "manifests", "list", "--database-url", operator.url]
    left = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)

    assert (left.returncode, left.stderr) == (141, "")


def test_the_same_commands_work_on_postgresql(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    servers, operator = Railway(postgres_url), Operator(postgres_url, capsys)
    asyncio.run(servers.runs(0))
    publish(postgres_url, "greet")

    operator("queue", "add", "greet", '{"name": "Bob"}', "--priority", "5")
    operator("groups", "set", "etl", "--max-active-jobs", "2")
    operator("manifests", "trigger", "greet-ada")
    (failed,) = operator.ids("executions", "list", "--state", "failed")
    rerun = operator("executions", "rerun", str(failed))
    requeued = operator("dead-letters", "requeue", "--all", "--yes")
    operator("settings", "set", "max_active_jobs=50")
    before = operator.json("status")
    asyncio.run(servers.runs())
    after = operator.json("status")

    assert (rerun.code, requeued.out) == (0, "requeued: 1\n")
    assert (before["ready"], after["ready"], after["dead_letters"]) == (4, 0, 2)
    outputs = {record["output"] for record in operator.json("executions", "list", "--train", "greet")}
    assert outputs == {"Hello, Ada!", "Hello, Bob!"}
    assert operator.json("groups", "show", "etl")["max_active_jobs"] == 2


def test_completion_is_installed_for_the_shell(tmp_path: Path) -> None:
    home = {**os.environ, "HOME": str(tmp_path), "SHELL": "/bin/bash"}

    preloaded.run([TRAX, "--install-completion"], env=home, check=True)

    (script,) = tmp_path.rglob("completions/trax")
    assert "dead-letters" in script.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words",
    [
        ["manifests", "list"],
        ["groups", "list"],
        ["queue", "list"],
        ["executions", "list"],
        ["executions", "logs", "1"],
        ["dead-letters", "list"],
        ["dead-letters", "groups"],
        ["dead-letters", "requeue", "--fingerprint", "a"],
        ["audit", "list"],
    ],
)
@pytest.mark.parametrize("limit", ["-1", "0", "1001"])
def test_an_invalid_limit_is_a_usage_error(operator: Operator, words: list[str], limit: str) -> None:
    done = operator(*words, "--limit", limit)

    assert done.code == 2
    assert f'"{limit}"' in done.err
    assert "--limit" in done.err
