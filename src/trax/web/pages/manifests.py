"""Manifest pages: the list, and one manifest with its schedule, reasons and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.app.manifests import timing_of
from trax.errors import TraxError, count_noun
from trax.records.nouns import MANIFESTS
from trax.records.states import ScheduleType
from trax.schedule.preview import explain, preview_runs
from trax.web.charts import Node, graph
from trax.web.context import context_of, link, request_form
from trax.web.pages.formats import describe_exclusion, exact
from trax.web.pages.listing import FilterField, read_filters
from trax.web.pages.rendering import Message, run_action, show, show_list

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from markupsafe import Markup

    from trax.records import Manifest
    from trax.records.schedule import Timing
    from trax.web.context import Form

router = APIRouter()
SWITCH: Final[Mapping[str, Mapping[str, Any]]] = {
    "on": {"enabled": True},
    "paused": {"enabled": False},
    "retired": {"retired": True},
}
SHOWN_PREVIEWS: Final = 5
SHOWN_RUNS: Final = 20
SHOWN_LETTERS: Final = 10
SHOWN_CHILDREN: Final = 20
SHOWN_PARENTS: Final = 5


@router.get("/manifests")
async def manifests(request: Request) -> Response:
    form = read_filters(request, MANIFESTS, FilterField("enabled", "State", SWITCH))
    return await show_list(request, "manifests.html", MANIFESTS, form, here="manifests")


@router.post("/manifests")
async def change_manifests(request: Request) -> Response:
    form = request_form(request)
    return await run_action(request, lambda: _apply_action(request, form, form.all("ids")))


@router.get("/manifests/{external_id:name}")
async def manifest(request: Request, external_id: str) -> Response:
    app = context_of(request).app
    found = await app.manifests.get(external_id)
    timing, now = await timing_of(app.context, found)
    fires = timing.broken is None and found.retired_at is None
    previews = preview_runs(timing, now, SHOWN_PREVIEWS) if fires else []
    return show(
        request,
        "manifest.html",
        here="manifests",
        manifest=found,
        in_words=describe_timing(found, timing),
        reasons=await app.why(external_id),
        previews=previews,
        no_preview=no_preview_text(found, timing),
        zone=timing.time_zone,
        exclusions=[describe_exclusion(exclusion) for exclusion in timing.exclusions],
        letters=await app.dead_letters.list(manifest=external_id, limit=SHOWN_LETTERS, brief=True),
        runs=await app.executions.page(manifest=external_id, limit=SHOWN_RUNS, brief=True),
        **await _family(request, found),
    )


@router.post("/manifests/{external_id:name}")
async def change_manifest(request: Request, external_id: str) -> Response:
    form = request_form(request)
    question = "Its executions in progress will be cancelled." if form.get("action") == "cancel" else None
    return await run_action(request, lambda: _apply_action(request, form, [external_id]), question=question)


def describe_timing(manifest: Manifest, timing: Timing) -> str:
    """Describe when a manifest runs."""
    match timing.schedule_type:
        case ScheduleType.CRON | ScheduleType.INTERVAL if timing.schedule is not None:
            text = explain(timing.schedule)
            return text[:1].lower() + text[1:]
        case ScheduleType.ONCE:
            return f"once, at {exact(timing.scheduled_at)}"
        case ScheduleType.DEPENDENT:
            return f"after each success of {manifest.depends_on}"
        case ScheduleType.DORMANT_DEPENDENT:
            return f"when a run of {manifest.depends_on} activates it"
        case _:
            return "only when triggered"


def no_preview_text(manifest: Manifest, timing: Timing) -> str:
    if manifest.retired_at is not None:
        return "None: the manifest is retired."
    if timing.broken is not None:
        return f"The schedule cannot be read: {timing.broken}"
    return f"No scheduled runs: it runs {describe_timing(manifest, timing)}."


async def _apply_action(request: Request, form: Form, external_ids: Sequence[str]) -> Message:
    manifests, action = context_of(request).app.manifests, form.get("action")
    verbs: dict[str, tuple[Callable[[str], Awaitable[Any]], str]] = {
        "trigger": (manifests.trigger, "triggered"),
        "enable": (manifests.enable, "resumed"),
        "disable": (manifests.disable, "paused"),
        "cancel": (manifests.cancel, "cancelled"),
    }
    if action not in verbs:
        raise TraxError(f"unknown action {action!r}; expected one of {', '.join(verbs)}")
    verb, outcome = verbs[action]
    results = [await verb(each) for each in external_ids]
    is_queued = action == "trigger" and len(results) == 1
    tail = f" ({count_noun(sum(results), 'execution')})" if action == "cancel" else ""
    return Message(
        f"{count_noun(len(results), 'manifest')} {outcome}{tail}",
        path=f"/queue/{results[0].id}" if is_queued else None,
    )


async def _family(request: Request, manifest: Manifest) -> dict[str, Any]:
    """The children of a manifest, and a drawing of its parents and children."""
    app = context_of(request).app
    children = await app.manifests.page(depends_on=manifest.external_id, limit=SHOWN_CHILDREN, brief=True)
    above = [manifest]
    while (parent := above[-1].depends_on) is not None and len(above) <= SHOWN_PARENTS:
        above.append(await app.manifests.get(parent))
    family = [*above[::-1], *children.items]
    return {
        "children": children.items,
        "more_children": children.newer is not None,
        "drawing": draw_family(request, family, manifest.external_id) if len(family) > 1 else None,
    }


def draw_family(request: Request, family: Sequence[Manifest], here: str) -> Markup:
    nodes = [
        Node(
            key=one.external_id,
            href=link(request, f"/manifests/{one.external_id}"),
            kind=("off" if _inactive_state(one) else "plain")
            + (" is-here" if one.external_id == here else ""),
            detail=_inactive_state(one) or one.train,
        )
        for one in family
    ]
    edges = [(one.depends_on, one.external_id) for one in family if one.depends_on]
    return graph(nodes, edges, label="Dependencies between manifests")


def _inactive_state(manifest: Manifest) -> str | None:
    """Why a manifest does not fire: retired or paused; None if it does."""
    if manifest.retired_at is not None:
        return "retired"
    return None if manifest.enabled else "paused"
