"""`trax secrets`, and what other commands say of secrets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel, SecretStr
from tests.support.operator import Operator

from trax import Retry, Trax
from trax.inspect.doctor import secret_finding
from trax.testing import Harness
from trax.train.secrets import VARIABLE, generate_key, load_keyring

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = "hunter" + str(2) * 3


class Login(BaseModel):
    token: SecretStr


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    made = generate_key()
    monkeypatch.setenv(VARIABLE, made)
    return made


@pytest.fixture
def operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(f"sqlite:///{tmp_path}/trax.db", capsys)


async def fill(url: str) -> None:
    """One run that gave up, with a letter, and one entry that waits."""
    app = Trax(url)

    @app.train(retry=Retry(max_retries=0))
    def enter(login: Login) -> None:
        raise RuntimeError(f"not with {login.token.get_secret_value()}")

    async with Harness(app) as h:
        await app.queue(enter, Login(token=SecretStr(PLAIN)))
        await h.run_until_idle()
        await app.queue(enter, Login(token=SecretStr(PLAIN)))


def test_a_key_that_is_made_can_be_used(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (operator.plainly("secrets", "generate-key").out.strip() for _ in range(2))

    monkeypatch.setenv(VARIABLE, f"{first},{second}")
    keyring = load_keyring()

    assert keyring is not None
    assert len(keyring.ids) == 2


def test_no_command_shows_a_secret(operator: Operator, key: str) -> None:
    asyncio.run(fill(operator.url))

    for words in (
        ("executions", "show", "1"),
        ("executions", "show", "1", "--json"),
        ("executions", "list", "--json"),
        ("queue", "show", "1"),
        ("queue", "list", "--json"),
        ("dead-letters", "show", "1"),
        ("why", "2"),
    ):
        told = operator(*words)
        assert told.out
        assert PLAIN not in told.out + told.err
        assert "v1:" not in told.out
        assert key not in told.out


def test_rotating_says_how_many_and_with_which_key(
    operator: Operator, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(fill(operator.url))
    monkeypatch.setenv(VARIABLE, f"{generate_key()},{key}")
    keyring = load_keyring()
    assert keyring is not None

    done, again = operator("secrets", "rotate"), operator.json("secrets", "rotate")

    assert (done.code, done.out) == (0, f"inputs re-encrypted with key {keyring.primary_id}: 4\n")
    assert again == {"key": keyring.primary_id, "rotated": 0, "unreadable": {}, "busy": 0}
    (_, first) = operator.json("audit", "list", "--action", "secrets.rotate")
    assert (first["ids"], first["via"]) == ([keyring.primary_id], "cli")
    assert first["after"]["rotated"] > 0


def test_rotating_without_the_old_key_names_it_and_fails(
    operator: Operator, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = load_keyring()
    assert old is not None
    asyncio.run(fill(operator.url))
    monkeypatch.setenv(VARIABLE, generate_key())

    told = operator("secrets", "rotate")

    assert told.code == 1
    assert told.err == f"inputs that need key {old.primary_id}, which is not in $TRAX_SECRET_KEY: 4\n"
    assert key not in told.out + told.err


def test_rotating_without_any_key_says_what_to_set(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)

    told = operator("secrets", "rotate")

    assert told.code == 1
    assert "$TRAX_SECRET_KEY is not set" in told.err


def test_the_doctor_names_a_key_that_is_needed_and_not_here(
    operator: Operator, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = load_keyring()
    assert old is not None
    asyncio.run(fill(operator.url))
    well = operator("db", "doctor")
    monkeypatch.setenv(VARIABLE, generate_key())
    ill = operator("db", "doctor")

    assert (well.code, ill.code) == (0, 1)
    assert f"ok     waiting inputs with encrypted secrets: 2, under key {old.primary_id}" in well.out
    assert f"WRONG  key {old.primary_id} is missing, and 2 inputs need it" in ill.out
    assert key not in well.out + ill.out


def test_where_there_is_no_key_at_all_the_doctor_does_not_judge() -> None:
    assert not secret_finding({"0a1b2c3d": 3}, None).is_wrong
    assert not secret_finding({}, frozenset()).is_wrong
