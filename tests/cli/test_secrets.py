"""`trax secrets`, and secrets in the output of other commands."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel, SecretStr
from sqlalchemy import text
from tests.support.operator import Operator

from trax import Retry, Trax
from trax.cli import main
from trax.inspect.doctor import secret_finding
from trax.store import Store
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


def test_a_rotation_reports_the_number_of_inputs_and_the_key(
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


def test_a_rotation_without_any_key_names_the_variable_to_set(
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


URL = f"postgresql://u:{PLAIN}@127.0.0.1:1/x"


@pytest.mark.parametrize("address", [URL, URL.replace(":1/x", "/x y"), f"host=h password={PLAIN}"])
@pytest.mark.parametrize(
    "line",
    [
        ["status", "ADDRESS"],
        ["ADDRESS"],
        ["queue", "ADDRESS"],
        ["queue", "list", "--limit", "ADDRESS"],
        ["queue", "list", "--limit=ADDRESS"],
        ["queue", "list", "--status", "ADDRESS"],
        ["queue", "cancel", "ADDRESS"],
        ["queue", "add", "greet", "ADDRESS"],
        ["settings", "set", "ADDRESS"],
        ["executions", "show", "ADDRESS"],
        ["lint", "ADDRESS"],
        ["plan", "ADDRESS"],
        ["import", "crontab", "ADDRESS"],
        ["import", "celery-beat", "ADDRESS"],
        ["import", "apscheduler", "ADDRESS"],
        ["import", "apscheduler", "--table", "ADDRESS", "EXISTING"],
    ],
    ids=" ".join,
)
def test_an_error_of_the_command_line_shows_no_password_of_a_url(
    line: list[str], address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    existing = tmp_path / "jobs.db"
    existing.touch()
    words = [word.replace("ADDRESS", address).replace("EXISTING", str(existing)) for word in line]

    with pytest.raises(SystemExit) as left:
        main(words)

    told = capsys.readouterr()
    assert left.value.code in (1, 2)
    assert PLAIN not in told.out + told.err
    assert told.err.startswith("trax: ")


def test_an_input_that_is_no_json_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["queue", "add", "greet", f'{{"password": "{PLAIN}"'])

    assert PLAIN not in capsys.readouterr().err


async def _fill_plainly(url: str) -> None:
    app = Trax(url)

    @app.train(retry=Retry(max_retries=0))
    def connect(value: dict[str, str]) -> dict[str, str]:
        if value["user"] == "eve":
            raise RuntimeError("no")
        return value

    async with Harness(app) as h:
        secrets = {"password": PLAIN, "to": URL}
        await app.queue(connect, {"user": "ada", **secrets})
        await app.queue(connect, {"user": "eve", **secrets})
        await h.run_until_idle()


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
def test_commands_hide_values_by_name(operator: Operator, as_json: tuple[str, ...]) -> None:
    asyncio.run(_fill_plainly(operator.url))

    for noun in ("queue", "executions", "dead-letters"):
        listed = operator(noun, "list", *as_json).out
        shown = operator(noun, "show", "1", *as_json).out
        assert PLAIN not in listed + shown
        assert "user" in shown


def test_a_new_database_file_is_its_owners_alone(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        with closing(Store(f"sqlite:///{tmp_path}/new.db")) as store:
            store.run(lambda connection: connection.execute(text("CREATE TABLE a (b)")))
            modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("new.db*")}
    finally:
        os.umask(umask)

    assert modes["new.db"] == 0o600
    assert set(modes.values()) == {0o600}


def test_the_permissions_of_a_file_that_exists_stay(tmp_path: Path) -> None:
    file = tmp_path / "old.db"
    file.touch()
    file.chmod(0o640)

    with closing(Store(f"sqlite:///{file}")) as store:
        store.run(lambda connection: connection.execute(text("CREATE TABLE a (b)")))

    assert file.stat().st_mode & 0o777 == 0o640


JOBS = """
from pydantic import BaseModel, SecretStr
from trax import Trax

app = Trax({url!r})

class Login(BaseModel):
    pin: SecretStr

@app.train
def enter(login: Login) -> None: ...
"""


@pytest.mark.usefixtures("key")
def test_a_job_is_queued_with_the_code_of_the_environment(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs_with_secrets.py").write_text(JOBS.format(url=operator.url), encoding="utf-8")
    monkeypatch.setenv("TRAX_APP", f"{tmp_path}/jobs_with_secrets.py:app")

    added = operator.plainly("queue", "add", "enter", f'{{"pin": "{PLAIN}"}}')
    unknown = operator.plainly("queue", "add", "leave", f'{{"pin": "{PLAIN}"}}')

    with closing(Store(operator.url)) as store:
        (stored,) = store.read(lambda c: c.execute(text("SELECT input FROM trax_work_queue")).scalars().all())
    assert (added.code, unknown.code) == (0, 1)
    assert '"pin":{"$secret":"v1:' in stored
    assert PLAIN not in added.out + added.err + unknown.err + stored
    assert "no live worker knows this train" in unknown.err
