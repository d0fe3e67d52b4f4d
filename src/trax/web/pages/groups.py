"""Manifest groups: who shares a limit and a priority, and who waits for whom."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import TraxError
from trax.schedule.declaration import UNSET
from trax.web.charts.graph import Node
from trax.web.charts.graph import graph as drawing_of
from trax.web.pages.acts import act, posted
from trax.web.pages.listing import ROWS, onwards, word
from trax.web.pages.messages import Message
from trax.web.pages.rendering import show
from trax.web.pages.spelled import whole_number
from trax.web.pages.words import many
from trax.web.room import link, room_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from markupsafe import Markup

    from trax.records.stats import GroupGraph
    from trax.web.pages.acts import Form

router = APIRouter()
SHOWN_RUNS: Final = 15
SHOWN_MANIFESTS: Final = 25
MOST_DRAWN: Final = 60
"""How many groups a drawing shows."""


@router.get("/groups")
async def groups(request: Request) -> Response:
    stats = room_of(request).app.stats
    found = await stats.groups(after=word(request, "after"), limit=ROWS + 1)
    graph = readable(await stats.graph())
    return show(
        request,
        "groups.html",
        here="groups",
        listing=onwards(request, found, limit=ROWS, key=lambda one: one.group.name),
        graph=graph,
        drawing=drawn(request, graph),
    )


@router.post("/groups")
async def change_groups(request: Request) -> Response:
    form = await posted(request)
    question = "What runs in these groups will be asked to stop." if form.get("action") == "cancel" else None
    return await act(request, form, lambda: _done(request, form, form.all("ids")), question=question)


@router.get("/groups/{name:name}")
async def group(request: Request, name: str) -> Response:
    app = room_of(request).app
    (found,) = await app.stats.groups(name=name)
    manifests = await app.manifests.page(group=name, limit=SHOWN_MANIFESTS, brief=True)
    near = readable(await app.stats.graph(name))
    return show(
        request,
        "group.html",
        here="groups",
        group=found.group,
        stats=found,
        manifests=manifests.items,
        more_manifests=manifests.newer is not None,
        graph=near,
        drawing=drawn(request, near, here=name),
        runs=await app.executions.page(group=name, limit=SHOWN_RUNS, brief=True),
    )


@router.post("/groups/{name:name}")
async def change_group(request: Request, name: str) -> Response:
    form = await posted(request)
    if form.get("action") == "save":
        return await act(request, form, lambda: _saved(request, form, name))
    question = "What runs in this group will be asked to stop." if form.get("action") == "cancel" else None
    return await act(request, form, lambda: _done(request, form, [name]), question=question)


def readable(found: GroupGraph) -> GroupGraph:
    """As much of it as one can take in: a wall of hundreds of boxes tells nothing."""
    shown: set[str] = set()
    edges: list[tuple[str, str]] = []
    for edge in found.edges:
        if len(shown.union(edge)) > MOST_DRAWN:
            return replace(found, edges=tuple(edges), exact=False)
        shown.update(edge)
        edges.append(edge)
    return found


def drawn(request: Request, found: GroupGraph, here: str | None = None) -> Markup | None:
    """Only those that wait for others, or others for them: the rest would be a wall of boxes."""
    linked = {name for edge in found.edges for name in edge}
    nodes = [
        Node(
            key=name, href=link(request, f"/groups/{name}"), kind="plain is-here" if name == here else "plain"
        )
        for name in found.groups
        if name in linked
    ]
    return drawing_of(nodes, found.edges, label="Which groups wait for which") if nodes else None


async def _saved(request: Request, form: Form, name: str) -> Message:
    limit = whole_number("Runs at once", form.get("max_active_jobs"))
    priority = whole_number("Priority", form.get("priority"))
    changed = await room_of(request).app.groups.update(
        name, max_active_jobs=limit, priority=UNSET if priority is None else priority
    )
    said = (
        "no limit"
        if changed.max_active_jobs is None
        else f"at most {many(changed.max_active_jobs, 'run')} at once"
    )
    return Message(f"{name}: {said}, priority {changed.priority}")


async def _done(request: Request, form: Form, names: Sequence[str]) -> Message:
    groups, action = room_of(request).app.groups, form.get("action")

    async def switch(name: str) -> Any:
        return await groups.update(name, enabled=action == "enable")

    verbs: dict[str, tuple[Callable[[str], Awaitable[Any]], str]] = {
        "trigger": (groups.trigger, "asked to run"),
        "enable": (switch, "resumed"),
        "disable": (switch, "paused"),
        "cancel": (groups.cancel, "asked to stop what runs"),
    }
    if action not in verbs:
        raise TraxError(f"a group knows no action {action!r}")
    verb, said = verbs[action]
    answers = [await verb(name) for name in names]
    counted = [answer for answer in answers if isinstance(answer, int)]
    tail = f" ({many(sum(counted), 'run')})" if counted else ""
    return Message(f"{many(len(answers), 'group')} {said}{tail}")
