"""Hidden values of an input that fills a form stay hidden and unchanged."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel
from tests.support.html_reader import Reader
from tests.support.web_app import browser

from trax import Trax
from trax.errors import InvalidInput
from trax.masking import HIDDEN
from trax.testing import Harness
from trax.web import Access, create
from trax.web.api.trains import schema_of
from trax.web.masking import Mask
from trax.web.pages.forms import form_of, texts_of, value_of, without_item

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.support.html_reader import Page

    from trax.records import Metadata


class Keys(BaseModel):
    name: str = "nobody"


class Account(BaseModel):
    user: str
    password: str = "changeme"


class Sync(BaseModel):
    accounts: list[Account]
    token: int = 1
    secret: Keys = Keys()
    api_key: bool = False
    authorization: list[str] = []
    extra: dict[str, Any] = {}
    rounds: int = 1


VALUE: dict[str, Any] = {
    "accounts": [{"user": "ada", "password": "hunter-first"}, {"user": "bob", "password": "hunter-second"}],
    "token": 770077,
    "secret": {"name": "hunter-third"},
    "api_key": True,
    "authorization": ["hunter-fourth"],
    "extra": {"access-token": "hunter-fifth", "a/b": {"secret": ["hunter-sixth"]}, "shown": 1},
    "rounds": 3,
}
SECRETS = ("hunter", "770077")
FIELD = form_of(schema_of(Sync, Mask()) or {})
mask = Mask()


class Desk:
    """An operator at the form of a train, who knows of one run."""

    def __init__(self, harness: Harness, reader: Reader, run: Metadata) -> None:
        self.app = harness.app
        self.reader = reader
        self.run = run

    async def form(self, **query: Any) -> Page:
        return await self.reader.open("/trains/sync", **{"like": self.run.id, **query})

    async def queued(self) -> list[Any]:
        return [entry.input for entry in await self.app.work_queue.list(status="queued")]


@asynccontextmanager
async def desk(url: str) -> AsyncGenerator[Desk]:
    app = Trax(url)

    @app.train
    def sync(order: Sync) -> None: ...

    @app.train
    def other(order: Sync) -> None: ...

    async with Harness(app) as harness:
        await app.queue(sync, Sync.model_validate(VALUE))
        await harness.run_until_idle()
        (run,) = await app.executions.list(train="sync")
        async with browser(create(app, access=Access(allow_anonymous=True))) as client:
            yield Desk(harness, Reader(client), run)


def test_marks_hide_everything_and_are_put_back() -> None:
    marked = mask.mark(VALUE)

    assert not any(secret in str(marked) for secret in SECRETS)
    assert marked["accounts"][1] == {"user": "bob", "password": f"{HIDDEN} /accounts/1/password"}
    assert marked["extra"]["a/b"] == {"secret": f"{HIDDEN} /extra/a~1b/secret"}
    assert mask.restore(marked, VALUE) == VALUE


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"password": HIDDEN}, "password"),
        ({"password": f"{HIDDEN} /nowhere"}, "password"),
        ({"password": f"{HIDDEN} /token and more"}, "password"),
        ({"extra": [{"secret": {"inner": HIDDEN}}]}, "extra.0.secret.inner"),
        ({"user": f"{HIDDEN} /token"}, "user"),  # it could be read there
    ],
)
def test_a_mark_that_cannot_be_kept_is_refused_by_its_field(value: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        mask.restore(value, VALUE)

    assert [error.path for error in refused.value.errors] == [path]


def test_dots_that_hide_nothing_are_plain_text() -> None:
    assert mask.restore({"user": HIDDEN}, VALUE) == {"user": HIDDEN}
    assert Mask.from_names(()).restore({"password": HIDDEN}, VALUE) == {"password": HIDDEN}


def test_a_mark_stays_in_a_field_of_any_kind() -> None:
    marked = mask.mark(VALUE)

    typed = texts_of(FIELD, marked)

    assert value_of(FIELD, typed) == marked
    assert texts_of(FIELD, value_of(FIELD, typed)) == typed


def test_an_item_keeps_its_mark_when_others_are_removed() -> None:
    typed = without_item("accounts.0", texts_of(FIELD, mask.mark(VALUE)))

    kept = mask.restore(value_of(FIELD, typed), VALUE)

    assert kept["accounts"] == [{"user": "bob", "password": "hunter-second"}]


async def test_a_form_that_is_sent_as_it_came_keeps_what_is_hidden(url: str) -> None:
    async with desk(url) as at:
        page = await at.form()
        sent = await at.reader.send(page, "Queue")

        assert not any(secret in page.source for secret in SECRETS)
        assert sent.path.startswith("/queue/")
        assert await at.queued() == [VALUE]


async def test_a_value_typed_over_a_mark_is_used_and_the_rest_is_kept(url: str) -> None:
    async with desk(url) as at:
        page = await at.form()
        typed = {"in:rounds": "4", "in:accounts.0.password": "new", "in:token": "5"}
        await at.reader.send(page, "Queue", typed)

        first, second = VALUE["accounts"]
        accounts = [{**first, "password": "new"}, second]
        assert await at.queued() == [{**VALUE, "rounds": 4, "token": 5, "accounts": accounts}]


async def test_json_and_fields_and_other_items_lose_nothing(url: str) -> None:
    async with desk(url) as at:
        page = await at.form()
        less = await at.reader.send(page, "Remove accounts 1")
        as_json = await at.reader.send(less, "Edit as JSON")
        back = await at.reader.send(as_json, "Edit in fields")
        for form in (as_json, back):
            await at.reader.send(form, "Queue")

        assert not any(secret in less.source + as_json.source + back.source for secret in SECRETS)
        assert await at.queued() == [{**VALUE, "accounts": VALUE["accounts"][1:]}] * 2


async def test_a_form_in_json_is_filled_too(url: str) -> None:
    async with desk(url) as at:
        page = await at.form(**{"as": "json"})
        await at.reader.send(page, "Queue")

        assert await at.queued() == [VALUE]


@pytest.mark.parametrize("like", ["", "999999", "nonsense"])
async def test_without_the_run_it_came_from_the_form_is_refused(url: str, like: str) -> None:
    async with desk(url) as at:
        page = await at.form()
        refused = await at.reader.send(page, "Queue", {"like": like})

        assert refused.status == 422
        assert refused.fields["in:token"]["aria-invalid"] == "true"
        assert "this value is hidden and cannot be restored; enter it again" in refused.text
        assert await at.queued() == []


async def test_another_train_does_not_get_what_is_hidden(url: str) -> None:
    async with desk(url) as at:
        fresh = await at.reader.open("/trains/other", like=at.run.id)
        marked = {"in:token": f"{HIDDEN} /token", "like": at.run.id}
        refused = await at.reader.send(fresh, "Queue", marked)

        assert fresh.fields["in:token"]["value"] == ""
        assert refused.status == 422
        assert await at.queued() == []
