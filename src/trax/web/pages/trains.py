"""Train pages: the list of trains, and the form to run one."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trax.bounds import load_json
from trax.errors import InvalidInput, NotFound, StoreError, TraxError
from trax.web.api.trains import enqueue, schema_of, summarize_train
from trax.web.context import context_of, link, request_form
from trax.web.pages.formats import duration, failure_limit, parse_whole, span, whole_number
from trax.web.pages.forms import (
    default_texts,
    form_of,
    render_form,
    texts_of,
    value_of,
    with_item,
    without_item,
)
from trax.web.pages.listing import query_text
from trax.web.pages.rendering import Message, set_message, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.errors import FieldError
    from trax.records import Metadata
    from trax.train import Train
    from trax.web.api.trains import TrainSummary
    from trax.web.context import Form
    from trax.web.pages.forms import FormField
    from trax.worker.entry import QueuedEntry

router = APIRouter()
PREFIX: Final = "in:"
SHOWN_RUNS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The unsent form of a train: its field texts or JSON, and the queue options."""

    typed: dict[str, str]
    as_json: bool = False
    json_text: str = ""
    like: str = ""
    """Id of the run whose input filled the form; hidden values are restored from it."""
    priority: str = ""
    delay: str = ""
    group: str = ""

    def value(self, field: FormField) -> Any:
        if not self.as_json:
            return value_of(field, self.typed)
        try:
            return load_json(self.json_text or "null")
        except ValueError as error:
            raise TraxError(f"invalid JSON: {error}") from None


@router.get("/trains")
async def trains(request: Request) -> Response:
    known, text = context_of(request).app.trains, query_text(request, "text")
    names = [name for name in known.names if text is None or text.casefold() in name.casefold()]
    rows = [summarize_train(known.get(name)) for name in names]
    return show(request, "trains.html", here="trains", rows=rows, text=text)


@router.get("/trains/{name:name}")
async def train(request: Request, name: str) -> Response:
    selected = context_of(request).app.trains.get(name)
    field = _form(request, selected)
    draft = Draft(typed=default_texts(field), as_json=query_text(request, "as") == "json")
    if (run := await _source_run(request, selected, query_text(request, "like"))) is not None:
        value = context_of(request).mask.mark(run.input)
        typed = texts_of(field, value) or draft.typed
        draft = replace(draft, like=str(run.id), typed=typed, json_text=_json(value))
    return await _show_train(request, selected, draft)


@router.post("/trains/{name:name}")
async def run_train(request: Request, name: str) -> Response:
    selected = context_of(request).app.trains.get(name)
    field = _form(request, selected)
    form = request_form(request)
    draft = _draft(form)
    if form.get("action") != "queue":
        return await _show_train(request, selected, _change_draft(form, draft, field))
    try:
        entry = await _enqueue(request, selected, draft, field)
    except StoreError:
        raise
    except InvalidInput as error:
        return await _show_train(request, selected, draft, error.errors)
    except TraxError as error:
        return await _show_train(request, selected, draft, problems=[str(error)])
    response = RedirectResponse(link(request, f"/queue/{entry.id}"), 303)
    set_message(request, response, Message(f"{selected.name} is queued as entry {entry.id}"))
    return response


async def _enqueue(request: Request, train: Train[Any, Any], draft: Draft, field: FormField) -> QueuedEntry:
    context, run = context_of(request), await _source_run(request, train, draft.like)
    return await enqueue(
        context.app,
        train.name,
        context.mask.restore(draft.value(field), run and run.input),
        {
            "priority": whole_number("Priority", draft.priority),
            "delay": duration("Delay", draft.delay),
            "group": draft.group or None,
        },
    )


async def _source_run(request: Request, train: Train[Any, Any], like: str | None) -> Metadata | None:
    """The run whose input fills the form; None for a run of another train, which must not get its secrets."""
    metadata_id = parse_whole(like or "")
    try:
        run = None if metadata_id is None else await context_of(request).app.executions.get(metadata_id)
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


def _change_draft(form: Form, draft: Draft, field: FormField) -> Draft:
    """Add or remove an item, or switch between fields and JSON; typed texts are kept."""
    if path := form.get("add"):
        return replace(draft, typed=with_item(path, draft.typed))
    if path := form.get("remove"):
        return replace(draft, typed=without_item(path, draft.typed))
    if form.get("turn") == "json":
        return replace(draft, as_json=True, json_text=_json(value_of(field, draft.typed)))
    try:
        return replace(draft, as_json=False, typed=texts_of(field, draft.value(field)))
    except TraxError:
        return draft


async def _show_train(
    request: Request,
    train: Train[Any, Any],
    draft: Draft,
    errors: Sequence[FieldError] = (),
    problems: Sequence[str] = (),
) -> Response:
    form = render_form(_form(request, train), draft.typed, () if draft.as_json else errors)
    if errors and draft.as_json:
        problems = [f"{error.path or 'input'}: {error.message}" for error in errors]
    elif errors:
        problems = ["Some fields are invalid."]
    return show(
        request,
        "train.html",
        here="trains",
        status=422 if problems else 200,
        train=train,
        about=summarize_train(train),
        facts=_facts(summarize_train(train)),
        form=form,
        draft=draft,
        problems=problems,
        runs=await context_of(request).app.executions.page(train=train.name, limit=SHOWN_RUNS, brief=True),
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _form(request: Request, train: Train[Any, Any]) -> FormField:
    return form_of(schema_of(train.input_type, context_of(request).mask) or {})


def _facts(about: TrainSummary) -> list[tuple[str, str]]:
    return [
        ("Route", about.route),
        ("Aliases", ", ".join(about.aliases)),
        ("Priority", str(about.priority)),
        ("Group", about.group or ""),
        ("Gives up after", "" if about.max_attempts is None else failure_limit(about.max_attempts)),
        ("Timeout", span(about.timeout) if about.timeout else ""),
        ("Executed by", about.submitter or ("own process" if about.cpu else "")),
    ]
