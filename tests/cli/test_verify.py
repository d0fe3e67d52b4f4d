"""`trax verify`: a table, JSON and exit codes."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from tests.cli.conftest import Railway
    from tests.support.operator import Operator

NIGHT = datetime(2027, 3, 2, tzinfo=UTC)


@pytest.fixture
async def railway(trains: Railway) -> Railway:
    await trains.runs(1, 2, 3)
    return trains


def break_history(railway: Railway) -> None:
    """Let a run have ended before it started."""

    def change(connection: Connection) -> None:
        statement = text("UPDATE trax_metadata SET ended_at = :early WHERE id = 2")
        connection.execute(statement, {"early": "2027-03-01T11:00:00.000000Z"})

    railway.app.context.store.open_blocking().run(change)


@pytest.mark.usefixtures("railway")
def test_a_clean_history_is_a_table_with_exit_code_0(operator: Operator) -> None:
    told = operator("verify")

    header, total, *_, last = told.out.splitlines()
    assert (told.code, header.split("\t")[:4]) == (0, ["group", "runs", "most active", "limit then"])
    assert total.split("\t")[:2] == ["(all)", "4"]
    assert last.startswith("clean: ")


def test_a_finding_is_printed_with_its_ids_and_exit_code_1(railway: Railway, operator: Operator) -> None:
    break_history(railway)

    told = operator("verify")

    assert (told.code, "WRONG  impossible state: run 2 ended at 11:00:00" in told.out) == (1, True)
    assert told.out.splitlines()[-1].startswith("1 finding: ")


def test_as_json_it_has_everything(railway: Railway, operator: Operator) -> None:
    break_history(railway)

    answer = operator("verify", "--json")

    told = json.loads(answer.out)
    assert (answer.code, answer.err) == (1, "")
    assert (told["is_clean"], told["counts"]) == (False, {"impossible_state": 1})
    assert [(each["kind"], each["noun"], each["ids"]) for each in told["findings"]] == [
        ("impossible_state", "run", [2])
    ]
    assert told["total"]["admitted"] == 4


class Screen(io.StringIO):
    """A terminal that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("railway")
@pytest.mark.parametrize(
    ("stream", "words", "is_shown"),
    [(Screen, (), True), (Screen, ("--json",), False), (io.StringIO, (), False)],
    ids=["terminal", "json", "pipe"],
)
def test_progress_is_shown_on_a_terminal_only(
    operator: Operator,
    monkeypatch: pytest.MonkeyPatch,
    stream: type[io.StringIO],
    words: tuple[str, ...],
    is_shown: bool,
) -> None:
    stderr = stream()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", stderr)

    told = operator("verify", *words)

    shown = stderr.getvalue()
    assert (told.code, "reading the history" in shown, "100%" in shown) == (0, is_shown, is_shown)
    assert is_shown or shown == ""
    assert "reading the history" not in told.out


def test_a_period_is_a_moment_or_a_duration(railway: Railway, operator: Operator) -> None:
    break_history(railway)

    assert operator("verify", "--until", "2027-03-01T11:59").code == 0
    assert operator("verify", "--since", "2027-03-01T12:00+00:00").code == 1
    assert operator("verify", "--since", NIGHT.isoformat()).code == 0
    assert operator("verify", "--until", "20000 days").code == 0


@pytest.mark.usefixtures("railway")
@pytest.mark.parametrize("words", [("--since", "yesterday"), ("--since=-5m", ""), ("--until", "2027-13-01")])
def test_a_wrong_period_is_a_usage_error(operator: Operator, words: tuple[str, str]) -> None:
    told = operator("verify", *filter(None, words))

    assert (told.code, words[0].partition("=")[0] in told.err) == (2, True)


def test_a_database_that_is_not_there_is_exit_code_2(operator: Operator) -> None:
    told = operator("verify")

    assert (told.code, "does not exist yet" in told.err) == (2, True)
