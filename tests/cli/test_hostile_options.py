"""Whatever is typed in any place of any command: an exit code, and one message that says what is wrong.

`TRAX_HOSTILE_EXAMPLES=2000 .venv/bin/pytest tests/cli/test_hostile_options.py` tries every word
in every place.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import railway
from tests.support.hostile import DRAWN, WANTED, WORDS, sample, words
from tests.support.operator import Operator

from trax.cli import build_parser
from trax.escapes import visible_text
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.operator import CommandResult

GOOD: Final = {
    "APP": "nowhere.py:app",
    "DEAD_LETTER_ID": "1",
    "EXTERNAL_ID": "greet-ada",
    "ID": "greet-ada",
    "INPUT": '{"name": "Ada"}',
    "NAME": "etl",
    "SOURCE": "crontab",
    "TRAIN": "greet",
    "--note": "done",
}
"""What a command needs besides the odd word; the default of all others is good."""
NEVER_STARTED: Final = {
    "dashboard": "--port=x",
    "demo": "--port=x",
    "run": "--web=x",
    "scheduler": "--log-level=x",
    "worker": "--processes=x",
}
"""A wrong option, so that no server is started."""
LONGEST_MESSAGE: Final = 3_000
IN_PLACE: Final = 100 if WANTED else 1


class Place(NamedTuple):
    """One argument or option of one command."""

    command: tuple[str, ...]
    name: str
    others: tuple[str, ...] = ()
    """The arguments that must be given with it."""

    def line(self, word: str) -> list[str]:
        given = f"{self.name}={word}" if self.name.startswith("-") else word
        return [*self.command, *self.others, given]


def leaves(parser: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in parser:
        if not name.startswith("-"):
            yield from leaves(parser[name], (*path, name))
    if path and parser.default_command is not None:
        yield path, parser


def places() -> Iterator[Place]:
    for path, command in leaves(build_parser()):
        arguments = [each for each in command.assemble_argument_collection() if each.names]
        for each in arguments:
            name: str = each.names[0]
            others = [
                other for other in arguments if other is not each and (other.required or other.index == 0)
            ]
            given = tuple(_good(other.names[0]) for other in others if other.index != each.index)
            if path[0] in NEVER_STARTED and not NEVER_STARTED[path[0]].startswith(f"{name}="):
                given = (*given, NEVER_STARTED[path[0]])
            yield Place(path, name, given)


def _good(name: str) -> str:
    word = GOOD.get(name, "1")
    return f"{name}={word}" if name.startswith("-") else word


PLACES: Final = tuple(places())


@pytest.fixture
async def desk(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Operator:
    """An operator in an empty folder, at a database with a job, a failure and a manifest."""
    app = railway(url)
    async with Harness(app) as harness:
        for number in (0, 1):
            await app.queue("divide", number)
        await harness.run_until_idle()
    app.close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAX_DATABASE_URL", url)
    (tmp_path / "crontab").write_text("0 7 * * * /bin/true\n")
    return Operator(url, capsys)


def problem_of(told: CommandResult) -> str | None:
    """What is wrong with an answer; None for a clear one."""
    said = told.err + told.out
    if told.code not in {0, 1, 2} or "Traceback" in said:
        return f"exit code {told.code}: {said[-2000:]}"
    if visible_text(said, keep="\n\t") != said:
        return f"control characters: {said[:300]!r}"
    if told.code == 0 or not told.err:
        return None
    is_one = told.err.startswith("trax: ") and told.err.count("trax: ") == 1
    return None if is_one and len(told.err) < LONGEST_MESSAGE else f"not one message: {told.err[:500]!r}"


def ask(desk: Operator, place: Place, word: str, monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.setattr("sys.stdin", io.StringIO("[" * 1000))
    try:
        problem = problem_of(desk.plainly(*place.line(word)))
    except Exception as error:  # noqa: BLE001 - that is the question
        problem = f"{type(error).__name__}: {error}"
    return problem and f"{' '.join(place.command)} {place.name} {ascii(word)[:100]}: {problem}"


def assert_goes_on(desk: Operator) -> None:
    told = desk("executions", "list", "--json")
    assert (told.code, {run["train"] for run in json.loads(told.out)}) >= (0, {"divide"})


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_no_word_in_any_place_breaks_a_command(
    url: str, desk: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = url.partition(":")[0]
    asked = [(place, word) for place in PLACES for word in sample(f"{dialect} {place}", WORDS, IN_PLACE)]

    problems = [problem for place, word in asked if (problem := ask(desk, place, word, monkeypatch))]

    assert len(PLACES) > 250
    assert not problems, "\n".join(problems)
    assert_goes_on(desk)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_no_drawn_word_breaks_a_command(desk: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    @DRAWN
    @given(asked=st.lists(st.tuples(st.sampled_from(PLACES), words), min_size=3, max_size=5))
    def story(asked: list[tuple[Place, str]]) -> None:
        problems = [problem for place, word in asked if (problem := ask(desk, place, word, monkeypatch))]
        assert not problems, "\n".join(problems)

    story()
    assert_goes_on(desk)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("command", "words", "reason"),
    [
        (("simulate",), ("--from=0001-01-01T00:00:00+14:00",), "from 1900-01-01 to 2999-12-31"),
        (("simulate",), ("--from=9999-12-31T23:59:59-12:00",), "from 1900-01-01 to 2999-12-31"),
        (("simulate",), ("--group=etl=" + "9" * 5000,), "at most 2147483647"),
        (("import", "apscheduler"), ("sqlite:///trax.db", "--table=\ud800"), "cannot be read as a job store"),
    ],
)
def test_words_that_broke_a_command_once_are_refused(
    desk: Operator, command: tuple[str, ...], words: tuple[str, ...], reason: str
) -> None:
    told = desk.plainly(*command, *words)

    assert problem_of(told) is None
    assert (told.code != 0, reason in told.err) == (True, True), told.err
