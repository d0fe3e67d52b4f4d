from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from trax import Trax, junction
from trax.errors import DefinitionError, InvalidSetting, RouteError, UnknownTrain

if TYPE_CHECKING:
    from pathlib import Path


@junction
def to_text(number: int) -> str:
    return str(number)


@junction
def to_bytes(text: str) -> bytes:
    return text.encode()


def test_declaring_touches_no_database(tmp_path: Path) -> None:
    file = tmp_path / "trax.db"
    app = Trax(f"sqlite:///{file}")

    app.train("convert", to_text >> to_bytes)
    app.provide(dict, dict)

    assert not file.exists()
    app.close()


def test_the_database_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAX_DATABASE_URL", f"sqlite:///{tmp_path}/there.db")
    monkeypatch.setenv("TRAX_SAVE_INPUTS", "no")
    app = Trax()
    train = app.train("convert", to_text)

    assert app.sync.run(train, 5) == "5"

    assert (tmp_path / "there.db").exists()
    app.close()


def test_a_train_is_found_by_its_name_and_by_those_it_had() -> None:
    app = Trax("memory://")

    train = app.train("convert", to_text >> to_bytes, aliases=("old_convert",))

    assert app.trains.get("convert") is app.trains.get("old_convert") is train
    with pytest.raises(UnknownTrain, match="did you mean 'convert'"):
        app.trains.get("konvert")


def test_a_route_that_does_not_fit_is_refused_where_it_is_written() -> None:
    app = Trax("memory://")

    with pytest.raises(RouteError, match="CHAIN001"):
        app.train("broken", to_bytes >> to_text)


def test_a_service_must_be_provided_before_a_train_uses_it() -> None:
    app = Trax("memory://")

    def mail(name: str, lock: threading.Event) -> None: ...

    with pytest.raises(RouteError, match="provide"):
        app.train(mail)
    app.provide(threading.Event, threading.Event)
    app.train(mail)


def test_an_input_that_cannot_travel_is_refused_where_the_train_is_defined() -> None:
    app = Trax("memory://")

    def hold(lock: threading.Event) -> None: ...

    with pytest.raises(DefinitionError, match="hold"):
        app.train(hold)


def test_a_wrong_setting_is_refused_at_once() -> None:
    with pytest.raises(InvalidSetting, match="did you mean 'max_active_jobs'"):
        Trax("memory://", max_active_job=5)  # pyright: ignore[reportCallIssue]


async def test_the_app_opens_and_closes_as_a_block(url: str) -> None:
    async with Trax(url) as app:
        train = app.train("convert", to_text)

        assert await app.run(train, 5) == "5"


def test_a_server_that_may_not_migrate_names_the_command(empty_url: str) -> None:
    app = Trax(empty_url, skip_migrations=True)
    train = app.train("convert", to_text)

    with pytest.raises(Exception, match="trax db migrate"):
        app.sync.run(train, 5)
    app.close()
