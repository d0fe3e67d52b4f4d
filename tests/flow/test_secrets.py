"""A secret in an input reaches the train that needs it, and stands in no table in plain text."""

from __future__ import annotations

import json
import logging
import traceback
from base64 import b64encode, urlsafe_b64encode
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from sqlalchemy import select, text

from trax import InvalidInput, Retry, Trax, TraxError, current, every
from trax.app.queue import run_by_name
from trax.app.secrets import rotate
from trax.errors import RemoteFailure
from trax.inspect.plan import plan_start
from trax.masking import HIDDEN
from trax.store.schema import tables
from trax.testing import Harness
from trax.train.secrets import VARIABLE, generate_key, hide_words, secret_words_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trax.records import Metadata
    from trax.store import Connection

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
PLAIN = "hunter" + str(2) * 3  # not spelled out, as stack traces show the lines of this file
PIN = 770077


class Login(BaseModel):
    user: str = "ada"
    token: SecretStr
    pin: Secret[int] = Secret[int](PIN)


class Ticket(BaseModel):
    ticket: SecretStr
    day: str = "monday"


LOGIN = Login(token=SecretStr(PLAIN))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    made = generate_key()
    monkeypatch.setenv(VARIABLE, made)
    return made


@pytest.fixture
def address(url: str, tmp_path: Path) -> str:
    """A database that others can open too."""
    return f"sqlite:///{tmp_path}/kept.db" if url == "memory://" else url


class Doors:
    """An app whose trains want a secret, and what they were given."""

    def __init__(self, url: str) -> None:
        self.app = app = Trax(url)
        self.seen: list[Login] = []
        self.hooked: list[Metadata] = []
        self.broken = False
        app.on_queue(self.hooked.append)
        app.on_completed(self.hooked.append)

        @app.train(retry=Retry(max_retries=0))
        async def enter(login: Login) -> Ticket:
            word = login.token.get_secret_value()
            logging.getLogger("doors").warning("entering with %s and %r", word, login)
            run = current()
            assert run is not None
            await run.progress(0.5, f"half way with {word}")
            self.seen.append(login)
            if self.broken:
                raise RuntimeError(f"the door does not take {word!r}")
            return Ticket(ticket=SecretStr(word))

        self.enter = enter


def dump(app: Trax) -> str:
    """Every value of every table, as text."""

    def read(connection: Connection) -> str:
        found = [
            str(value)
            for table in tables(connection).all.sorted_tables
            for row in connection.execute(select(*table.columns))
            for value in row
        ]
        return "\n".join(found)

    return app.context.store.open_blocking().read(read)


def assert_hidden(app: Trax) -> None:
    stored = dump(app)
    assert "enter" in stored
    for word in (PLAIN, str(PIN)):
        assert word not in stored


async def test_no_table_ever_holds_a_secret_in_plain_text(url: str) -> None:
    doors = Doors(url)
    app = doors.app
    app.schedule(doors.enter, "daily", LOGIN, every(days=1))

    async with Harness(app, now=NOON) as h:
        await app.queue(doors.enter, LOGIN, unique="ada")
        await app.queue("enter", {"token": PLAIN, "pin": PIN})
        assert_hidden(app)
        await h.run_until_idle()
        await h.cycle("run_log")
        assert_hidden(app)

        doors.broken = True
        await app.queue(doors.enter, LOGIN)
        await h.run_until_idle()
        await h.cycle("run_log")
        (letter,) = await app.dead_letters.list()
        assert_hidden(app)

        doors.broken = False
        await app.dead_letters.requeue([letter.id])
        await h.run_until_idle()
        (failed,) = await app.executions.list(state="failed")
        await app.executions.rerun(failed.id)
        await app.manifests.trigger("daily")
        await h.run_until_idle()
        await h.cycle("run_log")

        assert len(doors.seen) == 7
        assert all(login == LOGIN for login in doors.seen)
        assert_hidden(app)


async def test_a_record_shows_a_mask_in_place_of_a_secret(url: str) -> None:
    doors = Doors(url)
    doors.broken = True
    dots = {"user": "ada", "token": HIDDEN, "pin": HIDDEN}

    async with Harness(doors.app, now=NOON) as h:
        entry = await doors.app.queue(doors.enter, LOGIN)
        await h.run_until_idle()
        await h.cycle("run_log")
        (run,) = await doors.app.executions.list()
        (letter,) = await doors.app.dead_letters.list()
        lines = await doors.app.executions.logs(run.id)

    assert entry.input == run.input == letter.input == dots
    assert run.failure_reason == f"the door does not take '{HIDDEN}'"
    assert PLAIN not in str(run) + str(letter) + repr(lines)
    assert lines[0].message.startswith(f"entering with {HIDDEN} and Login(user='ada'")


async def test_hooks_and_outputs_show_no_secrets(url: str) -> None:
    doors = Doors(url)

    async with Harness(doors.app, now=NOON) as h:
        await doors.app.queue(doors.enter, LOGIN)
        await h.run_until_idle()
        (run,) = await doors.app.executions.list()

    assert run.output == {"ticket": HIDDEN, "day": "monday"}
    assert len(doors.hooked) == 2
    assert all(record.input["token"] == HIDDEN for record in doors.hooked)
    assert PLAIN not in repr(doors.hooked)


async def test_a_direct_run_needs_no_key_and_cannot_be_rerun(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    doors = Doors(url)

    async with Harness(doors.app, now=NOON) as h:
        ticket = await doors.app.run(doors.enter, LOGIN)
        await run_by_name(doors.app.context, "enter", {"token": PLAIN})
        await h.cycle("run_log")
        run = (await doors.app.executions.list())[0]

        assert ticket.ticket.get_secret_value() == PLAIN
        assert doors.seen == [LOGIN, LOGIN]
        assert run.input == {"user": "ada", "token": HIDDEN, "pin": HIDDEN}
        assert_hidden(doors.app)
        with pytest.raises(TraxError, match=r"cannot be rerun: its input has a secret that was not stored"):
            await doors.app.executions.rerun(run.id)


async def test_a_direct_run_can_be_rerun_where_there_is_a_key(url: str) -> None:
    doors = Doors(url)

    async with Harness(doors.app, now=NOON) as h:
        await doors.app.run(doors.enter, LOGIN)
        (run,) = await doors.app.executions.list()
        await doors.app.executions.rerun(run.id)
        await h.run_until_idle()

        assert doors.seen == [LOGIN, LOGIN]
        assert_hidden(doors.app)


async def test_without_a_key_a_secret_is_neither_queued_nor_scheduled(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    doors = Doors(url)
    said = r"invalid input: token: is a secret, .* install trax-scheduler\[secrets\] and set \$TRAX"

    with pytest.raises(InvalidInput, match=said):
        doors.app.schedule(doors.enter, "daily", LOGIN, every(days=1))
    async with Harness(doors.app, now=NOON):
        with pytest.raises(InvalidInput, match=said) as refused:
            await doors.app.queue(doors.enter, LOGIN)
        with pytest.raises(InvalidInput, match=said):
            await doors.app.queue("enter", {"token": PLAIN})
        with pytest.raises(InvalidInput, match=said):
            await doors.app.manifests.schedule(doors.enter, "hourly", LOGIN, every(hours=1))

        assert PLAIN not in str(refused.value)
        assert await doors.app.work_queue.list() == []


async def test_a_start_that_declares_the_same_secret_changes_nothing(address: str) -> None:

    def declaring(word: str) -> Trax:
        doors = Doors(address)
        doors.app.schedule(doors.enter, "daily", Login(token=SecretStr(word)), every(days=1))
        return doors.app

    stored = list[str]()
    for word in (PLAIN, PLAIN, PLAIN + "x"):
        async with Harness(app := declaring(word), now=NOON):
            stored.append(app.context.store.open_blocking().read(manifest_input))

    assert stored[0] == stored[1] != stored[2]


def manifest_input(connection: Connection) -> str:
    return connection.execute(select(tables(connection).manifest.c.input)).scalar_one()


async def test_an_input_with_a_missing_key_becomes_a_dead_letter_and_blocks_no_other(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    doors = Doors(url)

    async with Harness(doors.app, now=NOON) as h:
        await doors.app.queue(doors.enter, LOGIN, priority=9)
        monkeypatch.setenv(VARIABLE, generate_key())
        await doors.app.queue(doors.enter, LOGIN)
        await h.run_until_idle()

        (letter,) = await doors.app.dead_letters.list()
        assert len(doors.seen) == 1
        assert "token: is encrypted with key " in letter.reason
        assert "which is missing from $TRAX_SECRET_KEY here" in letter.reason
        assert_hidden(doors.app)


async def test_stored_secrets_can_be_rotated_to_another_key(
    address: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = generate_key()
    doors = Doors(address)
    doors.app.schedule(doors.enter, "daily", LOGIN, every(days=1))

    async with Harness(doors.app, now=NOON) as h:
        doors.broken = True
        await doors.app.queue(doors.enter, LOGIN)
        await h.run_until_idle()
        doors.broken = False
        await doors.app.queue_many(doors.enter, [LOGIN] * 3)
        monkeypatch.setenv(VARIABLE, f"{new},{key}")

        first, again = rotate(address), rotate(address)
        monkeypatch.setenv(VARIABLE, new)
        await doors.app.dead_letters.requeue_all()
        await h.run_until_idle()

        # Two entries that ran, three that wait; a manifest; two letters or one, two runs.
        assert first.rotated >= 8
        assert (first.unreadable, first.busy, again.rotated) == ({}, 0, 0)
        assert doors.seen[-1] == LOGIN
        assert await doors.app.dead_letters.list(status="awaiting_intervention") == []
        assert_hidden(doors.app)


async def test_a_rotation_without_the_old_key_names_it_and_changes_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    doors = Doors(address)

    async with Harness(doors.app, now=NOON):
        await doors.app.queue(doors.enter, LOGIN)
        before = dump(doors.app)
        monkeypatch.setenv(VARIABLE, generate_key())

        done = rotate(address)

        assert (done.rotated, list(done.unreadable.values())) == (0, [1])
        assert next(iter(done.unreadable)) in before
        assert dump(doors.app) == before


async def test_a_ciphertext_that_was_moved_to_another_row_of_another_train_is_refused(url: str) -> None:
    doors = Doors(url)

    @doors.app.train(retry=Retry(max_retries=0))
    def tell(login: Login) -> str:
        return login.token.get_secret_value()

    async with Harness(doors.app, now=NOON) as h:
        await doors.app.queue(doors.enter, LOGIN)
        await doors.app.queue(tell, Login(token=SecretStr("other")))
        doors.app.context.store.open_blocking().run(copy_input("enter", "tell"))
        await h.run_until_idle()

        (letter,) = await doors.app.dead_letters.list()
        assert letter.train == "tell"
        assert (
            "token: was encrypted for input.token of train 'enter', and can be read only there"
            in letter.reason
        )


def copy_input(source: str, target: str) -> Callable[[Connection], None]:
    def copy(connection: Connection) -> None:
        name = tables(connection).work_queue.fullname
        inner = f"SELECT input FROM {name} WHERE train = :source"  # noqa: S608 - a name of ours
        connection.execute(
            text(f"UPDATE {name} SET input = ({inner}) WHERE train = :target"),  # noqa: S608
            {"source": source, "target": target},
        )

    return copy


async def test_a_train_under_a_new_name_reads_what_it_was_queued_with(address: str) -> None:
    before = Doors(address)
    async with Harness(before.app, now=NOON):
        await before.app.queue(before.enter, LOGIN)
    seen: list[Login] = []
    after = Trax(address)

    @after.train(aliases=["enter"])
    def walk_in(login: Login) -> None:
        seen.append(login)

    async with Harness(after, now=NOON) as h:
        await h.run_until_idle()

    assert seen == [LOGIN]


async def test_a_plan_shows_no_secret_input(address: str) -> None:

    def declaring(word: str, user: str) -> Trax:
        doors = Doors(address)
        doors.app.schedule(doors.enter, "daily", Login(token=SecretStr(word), user=user), every(days=1))
        return doors.app

    async with Harness(declaring(PLAIN, "ada"), now=NOON):
        unchanged = await plan_start(declaring(PLAIN, "ada").context)
        (change,) = await plan_start(declaring(PLAIN + "x", "eve").context)

    (difference,) = change.differences
    assert unchanged == []
    assert json.loads(difference.new) == {"user": "eve", "token": HIDDEN, "pin": HIDDEN}
    assert "v1:" not in difference.old + difference.new


def test_a_secret_is_hidden_in_every_encoding_of_urls_and_headers() -> None:
    secret = "p/ss word+" + PLAIN
    words = secret_words_of({"token": SecretStr(secret), "raw": SecretBytes(secret.encode())})
    spellings = [
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret),
        *(
            encode(f"{before}{secret}{after}".encode()).decode()
            for encode in (b64encode, urlsafe_b64encode)
            for before in ("", "u", "us", "user:")
            for after in ("", ":x")
        ),
    ]

    for spelling in spellings:
        hidden = hide_words(f"sent {spelling} away", words)
        assert HIDDEN in hidden, spelling
        assert PLAIN not in hidden, spelling
        assert b64encode(PLAIN.encode()).decode()[4:12] not in hidden, spelling


class Refusal(Exception):
    def __init__(self, word: str, code: int) -> None:
        super().__init__(word, code)
        self.word = word
        self.code = code


class Unkind(Exception):
    """One that cannot be copied."""

    def __init__(self, *, word: str) -> None:
        super().__init__()
        self.details = [word]

    def __str__(self) -> str:
        return f"not with {self.details}"

    def __reduce__(self) -> str:
        raise TypeError("it stays here")


@pytest.mark.parametrize("kind", ["queued", "direct"])
@pytest.mark.parametrize("make", ["plain", "chained", "noted", "own", "unkind"])
async def test_a_hook_gets_the_exception_without_the_secret(address: str, make: str, kind: str) -> None:
    app, seen = Trax(address), list[BaseException]()

    @app.on_failed
    def hear(_: Metadata, error: BaseException) -> None:
        seen.append(error)

    assert hear

    @app.train(retry=Retry(max_retries=0))
    async def enter(ticket: Ticket) -> None:
        word = ticket.ticket.get_secret_value()
        match make:
            case "plain":
                raise ValueError(f"not with {word}")
            case "chained":
                raise ValueError("no") from KeyError(word)
            case "noted":
                error = ValueError("no")
                error.add_note(word)
                raise error
            case "own":
                raise Refusal(word, 7)
            case _:
                raise Unkind(word=word)

    async with Harness(app) as h:
        if kind == "queued":
            await app.queue(enter, Ticket(ticket=SecretStr(PLAIN)))
            await h.run_until_idle()
        else:
            with pytest.raises(Exception) as raised:  # noqa: PT011 - whichever was made
                await app.run(enter, Ticket(ticket=SecretStr(PLAIN)))
            assert PLAIN in "".join(traceback.format_exception(raised.value)), "the caller knows it"

    (error,) = seen
    assert PLAIN not in "".join(traceback.format_exception(error)) + repr((error, vars(error)))
    expected = {"own": Refusal, "unkind": RemoteFailure}.get(make, ValueError)
    assert type(error) is expected
    if isinstance(error, Refusal):
        assert (error.word, error.code) == (HIDDEN, 7)
