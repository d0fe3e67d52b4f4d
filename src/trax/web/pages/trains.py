"""Trains: what can run, and a form to run it with."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trax.bounds import load_json
from trax.errors import InvalidInput, NotFound, StoreError, TraxError
from trax.web.api.asking import asked_for
from trax.web.described import described, schema_of
from trax.web.pages.acts import in_name_of_visitor, posted
from trax.web.pages.fields import form_of
from trax.web.pages.filling import beginning, shown, spread, value_of, with_item, without_item
from trax.web.pages.listing import word
from trax.web.pages.messages import Message, say
from trax.web.pages.rendering import show
from trax.web.pages.spelled import duration, whole, whole_number
from trax.web.pages.words import patience, span
from trax.web.room import link, room_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.errors import FieldError
    from trax.host.entry import QueuedEntry
    from trax.records import Metadata
    from trax.train import Train
    from trax.web.described import TrainSummary
    from trax.web.pages.acts import Form
    from trax.web.pages.fields import Field

router = APIRouter()
PREFIX: Final = "in:"
SHOWN_RUNS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What somebody is about to run a train with: the fields as typed, or JSON, and how it waits."""

    typed: dict[str, str]
    as_json: bool = False
    json_text: str = ""
    like: str = ""
    """The id of the run whose input it was filled with: what is hidden is kept from there."""
    priority: str = ""
    delay: str = ""
    group: str = ""

    def value(self, field: Field) -> Any:
        if not self.as_json:
            return value_of(field, self.typed)
        try:
            return load_json(self.json_text or "null")
        except ValueError as wrong:
            raise TraxError(f"this is not JSON that can be read here: {wrong}") from None


@router.get("/trains")
async def trains(request: Request) -> Response:
    known, text = room_of(request).app.trains, word(request, "text")
    names = [name for name in known.names if text is None or text.casefold() in name.casefold()]
    rows = [described(known.get(name)) for name in names]
    return show(request, "trains.html", here="trains", rows=rows, text=text)


@router.get("/trains/{name:name}")
async def train(request: Request, name: str) -> Response:
    found = room_of(request).app.trains.get(name)
    field = _form(found)
    draft = Draft(typed=beginning(field), as_json=word(request, "as") == "json")
    if (run := await _like(request, found, word(request, "like"))) is not None:
        value = room_of(request).mask.mark(run.input)
        typed = spread(field, value) or draft.typed
        draft = replace(draft, like=str(run.id), typed=typed, json_text=_json(value))
    return await _shown(request, found, draft)


@router.post("/trains/{name:name}")
async def run_train(request: Request, name: str) -> Response:
    found = room_of(request).app.trains.get(name)
    field = _form(found)
    form = await posted(request)
    draft = _draft(form)
    if form.get("action") != "queue":
        return await _shown(request, found, _changed(form, draft, field))
    try:
        with in_name_of_visitor(request, form):
            entry = await _queued(request, found, draft, field)
    except StoreError:
        raise
    except InvalidInput as refused:
        return await _shown(request, found, draft, refused.errors)
    except TraxError as refused:
        return await _shown(request, found, draft, problems=[str(refused)])
    answer = RedirectResponse(link(request, f"/queue/{entry.id}"), 303)
    say(request, answer, Message(f"{found.name} is queued as entry {entry.id}"))
    return answer


async def _queued(request: Request, train: Train[Any, Any], draft: Draft, field: Field) -> QueuedEntry:
    room, run = room_of(request), await _like(request, train, draft.like)
    return await asked_for(
        room.app,
        train.name,
        room.mask.restore(draft.value(field), run and run.input),
        {
            "priority": whole_number("Priority", draft.priority),
            "delay": duration("Delay", draft.delay),
            "group": draft.group or None,
        },
    )


async def _like(request: Request, train: Train[Any, Any], like: str | None) -> Metadata | None:
    """The run of this train whose input is to be changed a little; another train gets no secrets of it."""
    metadata_id = whole(like or "")
    try:
        run = None if metadata_id is None else await room_of(request).app.executions.get(metadata_id)
    except NotFound:
        return None
    return run if run and run.train in {train.name, *train.options.aliases} else None


def _draft(form: Form) -> Draft:
    return Draft(
        typed={name.removeprefix(PREFIX): value for name, value in form.pairs if name.startswith(PREFIX)},
        as_json=form.get("as") == "json",
        json_text=form.get("json"),
        like=form.get("like"),
        priority=form.get("priority"),
        delay=form.get("delay"),
        group=form.get("group"),
    )


def _changed(form: Form, draft: Draft, field: Field) -> Draft:
    """The form with an item more or less, or turned from fields to JSON and back: nothing typed is lost."""
    if path := form.get("add"):
        return replace(draft, typed=with_item(path, draft.typed))
    if path := form.get("remove"):
        return replace(draft, typed=without_item(path, draft.typed))
    if form.get("turn") == "json":
        return replace(draft, as_json=True, json_text=_json(value_of(field, draft.typed)))
    try:
        return replace(draft, as_json=False, typed=spread(field, draft.value(field)))
    except TraxError:
        return draft


async def _shown(
    request: Request,
    train: Train[Any, Any],
    draft: Draft,
    errors: Sequence[FieldError] = (),
    problems: Sequence[str] = (),
) -> Response:
    form = shown(_form(train), draft.typed, () if draft.as_json else errors)
    if errors and draft.as_json:
        problems = [f"{error.path or 'the value itself'}: {error.message}" for error in errors]
    elif errors:
        problems = ["Some fields need another look."]
    return show(
        request,
        "train.html",
        here="trains",
        status=422 if problems else 200,
        train=train,
        about=described(train),
        facts=_facts(described(train)),
        form=form,
        draft=draft,
        problems=problems,
        runs=await room_of(request).app.executions.page(train=train.name, limit=SHOWN_RUNS, brief=True),
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _form(train: Train[Any, Any]) -> Field:
    return form_of(schema_of(train.input_type) or {})


def _facts(about: TrainSummary) -> list[tuple[str, str]]:
    return [
        ("Route", about.route),
        ("Also known as", ", ".join(about.aliases)),
        ("Priority", str(about.priority)),
        ("Group", about.group or ""),
        ("Gives up after", "" if about.max_retries is None else patience(about.max_retries)),
        ("Timeout", span(about.timeout) if about.timeout else ""),
        ("Executed by", about.submitter or ("a process of its own" if about.cpu else "")),
    ]
