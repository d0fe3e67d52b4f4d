"""Settings: how the installation behaves, for all; and how pages look, for one browser."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from fastapi import APIRouter
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trax.errors import TraxError
from trax.settings import SettingOrigin, Settings
from trax.web.api.settings import Setting, settings_now
from trax.web.pages.acts import act, posted
from trax.web.pages.fields import Kind, form_of
from trax.web.pages.messages import Message, say
from trax.web.pages.rendering import show
from trax.web.pages.spelled import duration
from trax.web.pages.taste import BLOCKS, Taste
from trax.web.room import link, room_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trax.web.pages.acts import Form
    from trax.web.pages.fields import Field

router = APIRouter()
SECTIONS: Final = {
    "manifest_manager_enabled": "The loops",
    "max_active_jobs": "The gate",
    "default_max_retries": "Failing and trying again",
    "recover_stuck_jobs_on_startup": "Starting",
    "local_worker_count": "The workers",
    "save_inputs": "The records",
}
"""With which setting a section begins."""
SWITCH: Final = {"on": True, "off": False}
NONE: Final = "none"
LENGTH: Final = TypeAdapter(timedelta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A setting as it is shown and typed."""

    setting: Setting
    text: str
    default: str
    choices: tuple[str, ...] = ()
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Settings that belong together."""

    label: str
    rows: tuple[Row, ...]

    @property
    def key(self) -> str:
        return self.label.lower().replace(" ", "-")


@router.get("/settings")
async def settings(request: Request) -> Response:
    found = await settings_now(room_of(request))
    edited = sum(one.origin is SettingOrigin.OPERATOR for one in found)
    return show(
        request, "settings.html", here="settings", sections=sections_of(found), edited=edited, blocks=BLOCKS
    )


@router.post("/settings")
async def change_settings(request: Request) -> Response:
    form = await posted(request)
    is_all = form.get("action") == "reset" and not form.get("name")
    question = "All edits will be undone: what code and environment say counts again." if is_all else None
    return await act(request, form, lambda: _done(request, form), question=question)


@router.post("/settings/yours")
async def change_taste(request: Request) -> Response:
    form = await posted(request)
    chosen = Taste.chosen(dict(form.pairs), frozenset(form.all("shown")))
    answer = RedirectResponse(link(request, "/settings"), 303)
    chosen.remember(request, answer)
    say(request, answer, Message("Kept in this browser."))
    return answer


def sections_of(found: Sequence[Setting]) -> list[Section]:
    rows: dict[str, list[Row]] = {}
    label = ""
    for setting in found:
        label = SECTIONS.get(setting.name, label)
        rows.setdefault(label, []).append(row_of(setting))
    return [Section(label, tuple(its)) for label, its in rows.items()]


def row_of(setting: Setting) -> Row:
    field = _fields()[setting.name]
    return Row(
        setting=setting,
        text=spelled(setting.name, setting.value),
        default=spelled(setting.name, setting.default) or NONE,
        choices=_choices(setting.name, field),
        placeholder=NONE if _may_be_none(setting.name) else "",
    )


def spelled(name: str, value: Any) -> str:
    """A stored value as somebody would type it."""
    field = _fields()[name]
    match value:
        case None:
            return NONE if _choices(name, field) else ""
        case bool():
            return "on" if value else "off"
        case list():
            return ", ".join(str(word) for word in cast("list[Any]", value))
        case _ if _is_length(name):
            return _length(LENGTH.validate_python(value))
        case _:
            return str(value)


def typed(name: str, text: str) -> Any:
    """The value that was typed. Whether it can work is for the settings themselves to say."""
    if not text or text == NONE:
        return None
    if name in _fields() and _is_length(name):
        return duration(name, text)
    return SWITCH.get(text, text)


async def _done(request: Request, form: Form) -> Message:
    app, name = room_of(request).app, form.get("name")
    match form.get("action"):
        case "save":
            await app.settings.update(**{name: typed(name, form.get("value"))})
            now = spelled(name, (await app.settings.get()).spelled([name])[name])
            return Message(f"{name} is {now or NONE} now")
        case "reset":
            await app.settings.reset(*([name] if name else []))
            return Message(f"{name or 'Every setting'} is what code and environment say")
        case other:
            raise TraxError(f"a setting knows no action {other!r}")


@cache
def _fields() -> Mapping[str, Field]:
    return {field.path: field for field in form_of(Settings.model_json_schema()).children}


@cache
def _is_length(name: str) -> bool:
    return isinstance(getattr(Settings(), name), timedelta)


def _may_be_none(name: str) -> bool:
    return type(None) in get_args(Settings.model_fields[name].annotation)


def _choices(name: str, field: Field) -> tuple[str, ...]:
    if field.kind is Kind.TICK:
        return tuple(SWITCH)
    more = (NONE,) if field.choices and _may_be_none(name) else ()
    return (*map(str, field.choices), *more)


def _length(value: timedelta) -> str:
    """In the largest unit that needs no fraction."""
    seconds = value.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"
