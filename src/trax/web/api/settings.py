"""`/settings`: list, update and reset settings while servers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body
from pydantic import BaseModel, Field
from starlette.responses import Response

from trax.settings import SettingOrigin, Settings
from trax.settings.kinds import Effective
from trax.web.api import bodies
from trax.web.api.paging import JsonWriter, Name
from trax.web.context import InjectedContext

if TYPE_CHECKING:
    from trax.web.context import WebContext

router = APIRouter(prefix="/settings", tags=["settings"], route_class=bodies.JsonRoute)


class Setting(BaseModel):
    """One setting: its current value, where it comes from, and when an edit takes effect."""

    name: str
    value: Any
    default: Any
    origin: SettingOrigin
    effective: Effective
    description: str | None


class Reset(bodies.Body):
    """Names of the settings to reset; empty: all."""

    names: Annotated[list[Name], Field(max_length=len(Settings.model_fields))] = Field(
        default_factory=list[str]
    )


settings_response = JsonWriter(list[Setting])


@router.get("", response_model=list[Setting])
async def list_settings(context: InjectedContext) -> Response:
    """List the editable settings with their current values."""
    return settings_response(await load_settings(context))


@router.patch("", response_model=list[Setting])
async def update_settings(
    context: InjectedContext, body: Annotated[dict[str, Any], Body(min_length=1)]
) -> Response:
    """Change settings for all servers, all or none. Null means no limit.

    A duration is text, such as `90s`, `25 min` or `PT20M`, or a number of seconds.
    """
    await context.app.settings.update(**body)
    return settings_response(await load_settings(context))


@router.post("/reset", response_model=list[Setting])
async def reset_settings(context: InjectedContext, body: Reset) -> Response:
    """Reset edited settings to their values from code and environment."""
    await context.app.settings.reset(*body.names)
    return settings_response(await load_settings(context))


async def load_settings(context: WebContext) -> list[Setting]:
    """The editable settings. Those read only at startup are left out; one may contain a password."""
    names = [name for name in Settings.model_fields if not Settings.is_fixed(name)]
    values = (await context.app.settings.get()).to_json_values(names)
    defaults, origins = Settings().to_json_values(names), await context.app.settings.origins()
    return [
        Setting.model_construct(
            name=name,
            value=values[name],
            default=defaults[name],
            origin=origins[name],
            effective=Settings.effective(name),
            description=Settings.description(name),
        )
        for name in names
    ]
