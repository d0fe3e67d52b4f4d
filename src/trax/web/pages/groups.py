"""Manifest group pages: limits, priorities and dependencies of groups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import TraxError, count_noun
from trax.records.nouns import MANIFESTS
from trax.schedule.declaration import UNSET
from trax.web.charts import Node
from trax.web.charts import graph as draw_graph
from trax.web.context import context_of, link, request_form
from trax.web.pages.formats import whole_number
from trax.web.pages.listing import ROWS, from_start, query_text
from trax.web.pages.rendering import Message, run_action, show

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from markupsafe import Markup

    from trax.records.stats import GroupGraph
    from trax.web.context import Form

router = APIRouter()
SHOWN_RUNS: Final = 15
SHOWN_MANIFESTS: Final = 25
MAX_GROUPS_DRAWN: Final = 60
"""Maximum number of groups in a drawing."""


@router.get("/groups")
async def groups(request: Request) -> Response:
    stats = context_of(request).app.stats
    rows = await stats.groups(after=query_text(request, "after"), limit=ROWS + 1)
    graph = limit_graph(await stats.graph())
    return show(
        request,
        "groups.html",
        here="groups",
        listing=from_start(request, rows, limit=ROWS, key=lambda row: row.group.name),
        graph=graph,
        drawing=draw_groups(request, graph),
    )


@router.post("/groups")
async def change_groups(request: Request) -> Response:
    form = request_form(request)
    question = (
        "All executions in progress of these groups will be cancelled."
        if form.get("action") == "cancel"
        else None
    )
    return await run_action(request, lambda: _apply_action(request, form, form.all("ids")), question=question)


@router.get("/groups/{name:name}")
async def group(request: Request, name: str) -> Response:
    app = context_of(request).app
    (stats,) = await app.stats.groups(name=name)
    manifests = await app.manifests.page(group=name, limit=SHOWN_MANIFESTS, brief=True)
    near = limit_graph(await app.stats.graph(name))
    return show(
        request,
        "group.html",
        here="groups",
        group=stats.group,
        stats=stats,
        manifests=manifests.items,
        columns=MANIFESTS.page_columns({}),
        more_manifests=manifests.newer is not None,
        graph=near,
        drawing=draw_groups(request, near, here=name),
        runs=await app.executions.page(group=name, limit=SHOWN_RUNS, brief=True),
    )


@router.post("/groups/{name:name}")
async def change_group(request: Request, name: str) -> Response:
    form = request_form(request)
    if form.get("action") == "save":
        return await run_action(request, lambda: _save_limits(request, form, name))
    question = (
        "All executions in progress of this group will be cancelled."
        if form.get("action") == "cancel"
        else None
    )
    return await run_action(request, lambda: _apply_action(request, form, [name]), question=question)


def limit_graph(graph: GroupGraph) -> GroupGraph:
    """Limit the graph to a readable number of groups."""
    shown: set[str] = set()
    edges: list[tuple[str, str]] = []
    for edge in graph.edges:
        if len(shown.union(edge)) > MAX_GROUPS_DRAWN:
            return replace(graph, edges=tuple(edges), exact=False)
        shown.update(edge)
        edges.append(edge)
    return graph


def draw_groups(request: Request, graph: GroupGraph, here: str | None = None) -> Markup | None:
    """Draw the groups that have dependencies; the others are left out."""
    linked = {name for edge in graph.edges for name in edge}
    nodes = [
        Node(
            key=name, href=link(request, f"/groups/{name}"), kind="plain is-here" if name == here else "plain"
        )
        for name in graph.groups
        if name in linked
    ]
    return draw_graph(nodes, graph.edges, label="Dependencies between groups") if nodes else None


async def _save_limits(request: Request, form: Form, name: str) -> Message:
    limit = whole_number("Max active jobs", form.get("max_active_jobs"))
    priority = whole_number("Priority", form.get("priority"))
    changed = await context_of(request).app.groups.update(
        name, max_active_jobs=limit, priority=UNSET if priority is None else priority
    )
    limit_text = (
        "no limit"
        if changed.max_active_jobs is None
        else f"at most {count_noun(changed.max_active_jobs, 'active job')}"
    )
    return Message(f"{name}: {limit_text}, priority {changed.priority}")


async def _apply_action(request: Request, form: Form, names: Sequence[str]) -> Message:
    groups, action = context_of(request).app.groups, form.get("action")

    async def switch(name: str) -> Any:
        return await groups.update(name, enabled=action == "enable")

    verbs: dict[str, tuple[Callable[[str], Awaitable[Any]], str]] = {
        "trigger": (groups.trigger, "triggered"),
        "enable": (switch, "resumed"),
        "disable": (switch, "paused"),
        "cancel": (groups.cancel, "cancelled"),
    }
    if action not in verbs:
        raise TraxError(f"unknown action {action!r}; expected one of {', '.join(verbs)}")
    verb, outcome = verbs[action]
    results = [await verb(name) for name in names]
    tail = ""
    if action == "trigger":
        tail = f" ({count_noun(sum(results), 'entry', 'entries')})"
    elif action == "cancel":
        tail = f" ({count_noun(sum(map(len, results)), 'execution')})"
    return Message(f"{count_noun(len(results), 'group')} {outcome}{tail}")
