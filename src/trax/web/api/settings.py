"""What operators may change while servers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body
from pydantic import BaseModel, Field
from starlette.responses import Response

from trax.settings import SettingOrigin, Settings
from trax.settings.kinds import Effective
from trax.web.api import bodies
from trax.web.api.paging import Name
from trax.web.api.writing import Writes
from trax.web.room import TheRoom

if TYPE_CHECKING:
    from trax.web.room import Room

router = APIRouter(prefix="/settings", tags=["settings"], route_class=bodies.JsonRoute)


class Setting(BaseModel):
    """One setting: its value now, who says so, and when an edit of it counts."""

    name: str
    value: Any
    default: Any
    origin: SettingOrigin
    effective: Effective
    description: str | None


class Reset(bodies.Body):
    """Whose edits to undo; none named: all."""

    names: Annotated[list[Name], Field(max_length=len(Settings.model_fields))] = Field(
        default_factory=list[str]
    )


some = Writes(list[Setting])


@router.get("", response_model=list[Setting])
async def list_settings(room: TheRoom) -> Response:
    """All that can be edited, with their values now."""
    return some(await settings_now(room))


@router.patch("", response_model=list[Setting])
async def update_settings(room: TheRoom, body: Annotated[dict[str, Any], Body(min_length=1)]) -> Response:
    """Change these on every server, all of them or none; null means no limit, a number is seconds."""
    await room.app.settings.update(**body)
    return some(await settings_now(room))


@router.post("/reset", response_model=list[Setting])
async def reset_settings(room: TheRoom, body: Reset) -> Response:
    """Undo operators' edits: what code and environment say counts again."""
    await room.app.settings.reset(*body.names)
    return some(await settings_now(room))


async def settings_now(room: Room) -> list[Setting]:
    """Those a process reads once are its own affair, and one of them may hold a password."""
    names = [name for name in Settings.model_fields if not Settings.is_fixed(name)]
    values = (await room.app.settings.get()).spelled(names)
    defaults, origins = Settings().spelled(names), await room.app.settings.origins()
    return [
        Setting.model_construct(
            name=name,
            value=values[name],
            default=defaults[name],
            origin=origins[name],
            effective=Settings.effective(name),
            description=Settings.model_fields[name].description,
        )
        for name in names
    ]
