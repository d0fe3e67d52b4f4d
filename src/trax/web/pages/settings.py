"""Settings page: settings of the installation, and display preferences of this browser."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trax.errors import TraxError
from trax.settings import SettingOrigin, Settings
from trax.web.api.settings import Setting, load_settings
from trax.web.context import context_of, link, request_form
from trax.web.pages.formats import duration
from trax.web.pages.forms import Kind, form_of
from trax.web.pages.rendering import BLOCKS, Message, Preferences, run_action, set_message, show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trax.web.context import Form
    from trax.web.pages.forms import FormField

router = APIRouter()
SECTIONS: Final = {
    "manifest_manager_enabled": "Loops",
    "max_active_jobs": "Dispatcher",
    "default_max_attempts": "Failures and retries",
    "recover_stuck_jobs_on_startup": "Startup",
    "local_worker_count": "Workers",
    "save_inputs": "Records",
}
"""The first setting of each section."""
SWITCH: Final = {"on": True, "off": False}
NONE: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """A setting as shown and edited."""

    setting: Setting
    text: str
    default: str
    choices: tuple[str, ...] = ()
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of related settings."""

    label: str
    rows: tuple[SettingRow, ...]

    @property
    def key(self) -> str:
        return self.label.lower().replace(" ", "-")


@router.get("/settings")
async def settings(request: Request) -> Response:
    rows = await load_settings(context_of(request))
    edited = sum(row.origin is SettingOrigin.OPERATOR for row in rows)
    return show(
        request, "settings.html", here="settings", sections=sections_of(rows), edited=edited, blocks=BLOCKS
    )


@router.post("/settings")
async def change_settings(request: Request) -> Response:
    form = request_form(request)
    is_all = form.get("action") == "reset" and not form.get("name")
    question = (
        "All edited settings will be reset to their values from code and environment." if is_all else None
    )
    return await run_action(request, lambda: _apply_action(request, form), question=question)


@router.post("/settings/yours")
async def change_preferences(request: Request) -> Response:
    form = request_form(request)
    preferences = Preferences.from_form(dict(form.pairs), frozenset(form.all("shown")))
    response = RedirectResponse(link(request, "/settings"), 303)
    preferences.save(request, response)
    set_message(request, response, Message("Saved in this browser."))
    return response


def sections_of(found: Sequence[Setting]) -> list[Section]:
    rows: dict[str, list[SettingRow]] = {}
    label = ""
    for setting in found:
        label = SECTIONS.get(setting.name, label)
        rows.setdefault(label, []).append(row_of(setting))
    return [Section(label, tuple(section_rows)) for label, section_rows in rows.items()]


def row_of(setting: Setting) -> SettingRow:
    field = _fields()[setting.name]
    return SettingRow(
        setting=setting,
        text=format_setting(setting.name, setting.value),
        default=format_setting(setting.name, setting.default) or NONE,
        choices=_choices(setting.name, field),
        placeholder=NONE if _may_be_none(setting.name) else "",
    )


def format_setting(name: str, value: Any) -> str:
    """Format a setting's value for editing."""
    field = _fields()[name]
    match value:
        case None:
            return NONE if _choices(name, field) else ""
        case bool():
            return "on" if value else "off"
        case list():
            return ", ".join(str(word) for word in cast("list[Any]", value))
        case _:
            return str(value)


def parse_setting(name: str, text: str) -> Any:
    """Parse an edited value; the settings validate it."""
    if not text or text == NONE:
        return None
    if name in _fields() and _is_duration(name):
        return duration(name, text)
    return SWITCH.get(text, text)


async def _apply_action(request: Request, form: Form) -> Message:
    app, name = context_of(request).app, form.get("name")
    match form.get("action"):
        case "save":
            await app.settings.update(**{name: parse_setting(name, form.get("value"))})
            now = format_setting(name, (await app.settings.get()).to_json_values([name])[name])
            return Message(f"{name} is now {now or NONE}")
        case "reset":
            await app.settings.reset(*([name] if name else []))
            return Message(f"{name or 'All settings'} reset to the value from code and environment")
        case other:
            raise TraxError(f"unknown action {other!r}; expected save or reset")


@cache
def _fields() -> Mapping[str, FormField]:
    return {field.path: field for field in form_of(Settings.model_json_schema()).children}


@cache
def _is_duration(name: str) -> bool:
    return isinstance(getattr(Settings(), name), timedelta)


def _may_be_none(name: str) -> bool:
    return type(None) in get_args(Settings.model_fields[name].annotation)


def _choices(name: str, field: FormField) -> tuple[str, ...]:
    if field.kind is Kind.TICK:
        return tuple(SWITCH)
    more = (NONE,) if field.choices and _may_be_none(name) else ()
    return (*map(str, field.choices), *more)
