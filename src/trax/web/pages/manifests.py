"""Manifests: which train runs when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import TraxError
from trax.host.manifests import ManifestKeywords
from trax.host.timing import timing_of
from trax.records.states import ScheduleType
from trax.schedule.describe import explained
from trax.schedule.preview import previewed
from trax.web.charts.graph import Node, graph
from trax.web.pages.acts import act, posted
from trax.web.pages.listing import ROWS, by_name, one_of, word
from trax.web.pages.messages import Message
from trax.web.pages.rendering import show
from trax.web.pages.spelled import excluded
from trax.web.pages.words import exact, many
from trax.web.room import link, room_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from markupsafe import Markup

    from trax.records import Manifest
    from trax.records.when import Timing
    from trax.web.pages.acts import Form

router = APIRouter()
SWITCH: Final[dict[str, ManifestKeywords]] = {
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
    app, enabled = room_of(request).app, one_of(request, "enabled", SWITCH)
    query: ManifestKeywords = {
        "text": word(request, "text"),
        "train": word(request, "train"),
        "group": word(request, "group"),
        "schedule_type": one_of(request, "schedule_type", ScheduleType),
    }
    nothing: ManifestKeywords = {}
    wanted: ManifestKeywords = {**query, **(SWITCH[enabled] if enabled else nothing)}
    found = await app.manifests.page(
        **wanted, before=word(request, "before"), after=word(request, "after"), limit=ROWS, brief=True
    )
    return show(
        request,
        "manifests.html",
        here="manifests",
        listing=by_name(request, found, await app.manifests.count(**wanted, quick=True)),
        query={**query, "enabled": enabled},
        is_filtered=bool(enabled or any(query.values())),
        types=list(ScheduleType),
    )


@router.post("/manifests")
async def change_manifests(request: Request) -> Response:
    form = await posted(request)
    return await act(request, form, lambda: _done(request, form, form.all("ids")))


@router.get("/manifests/{external_id:name}")
async def manifest(request: Request, external_id: str) -> Response:
    app = room_of(request).app
    found = await app.manifests.get(external_id)
    timing, now = await timing_of(app.parts, found)
    fires = timing.broken is None and found.retired_at is None
    previews = previewed(timing, now, SHOWN_PREVIEWS) if fires else []
    return show(
        request,
        "manifest.html",
        here="manifests",
        manifest=found,
        in_words=in_words(found, timing),
        reasons=await app.why(external_id),
        previews=previews,
        no_preview=no_preview(found, timing),
        zone=timing.time_zone,
        exclusions=[excluded(one) for one in timing.exclusions],
        letters=await app.dead_letters.list(manifest=external_id, limit=SHOWN_LETTERS, brief=True),
        runs=await app.executions.page(manifest=external_id, limit=SHOWN_RUNS, brief=True),
        **await _family(request, found),
    )


@router.post("/manifests/{external_id:name}")
async def change_manifest(request: Request, external_id: str) -> Response:
    form = await posted(request)
    question = "Its runs in progress will be asked to stop." if form.get("action") == "cancel" else None
    return await act(request, form, lambda: _done(request, form, [external_id]), question=question)


def in_words(manifest: Manifest, timing: Timing) -> str:
    """When it runs, as one would say it."""
    match timing.schedule_type:
        case ScheduleType.CRON | ScheduleType.INTERVAL if timing.schedule is not None:
            said = explained(timing.schedule)
            return said[:1].lower() + said[1:]
        case ScheduleType.ONCE:
            return f"once, at {exact(timing.scheduled_at)}"
        case ScheduleType.DEPENDENT:
            return f"after each success of {manifest.depends_on}"
        case ScheduleType.DORMANT_DEPENDENT:
            return f"when a run of {manifest.depends_on} asks for it"
        case _:
            return "when somebody starts it"


def no_preview(manifest: Manifest, timing: Timing) -> str:
    if manifest.retired_at is not None:
        return "None: it is retired."
    if timing.broken is not None:
        return f"Its row cannot be read: {timing.broken}"
    return f"None is due by the clock: it runs {in_words(manifest, timing)}."


async def _done(request: Request, form: Form, external_ids: Sequence[str]) -> Message:
    manifests, action = room_of(request).app.manifests, form.get("action")
    verbs: dict[str, tuple[Callable[[str], Awaitable[Any]], str]] = {
        "trigger": (manifests.trigger, "queued to run now"),
        "enable": (manifests.enable, "resumed"),
        "disable": (manifests.disable, "paused"),
        "cancel": (manifests.cancel, "asked to stop what runs"),
    }
    if action not in verbs:
        raise TraxError(f"a manifest knows no action {action!r}")
    verb, said = verbs[action]
    answers = [await verb(one) for one in external_ids]
    is_queued = action == "trigger" and len(answers) == 1
    return Message(
        f"{many(len(answers), 'manifest')} {said}", path=f"/queue/{answers[0].id}" if is_queued else None
    )


async def _family(request: Request, manifest: Manifest) -> dict[str, Any]:
    """Whom it waits for, who waits for it, and a drawing of both."""
    app = room_of(request).app
    found = await app.manifests.page(depends_on=manifest.external_id, limit=SHOWN_CHILDREN, brief=True)
    above = [manifest]
    while (parent := above[-1].depends_on) is not None and len(above) <= SHOWN_PARENTS:
        above.append(await app.manifests.get(parent))
    family = [*above[::-1], *found.items]
    return {
        "children": found.items,
        "more_children": found.newer is not None,
        "drawing": drawn(request, family, manifest.external_id) if len(family) > 1 else None,
    }


def drawn(request: Request, family: Sequence[Manifest], here: str) -> Markup:
    nodes = [
        Node(
            key=one.external_id,
            href=link(request, f"/manifests/{one.external_id}"),
            kind=f"{'off' if _rest(one) else 'plain'}{' is-here' if one.external_id == here else ''}",
            detail=_rest(one) or one.train,
        )
        for one in family
    ]
    edges = [(one.depends_on, one.external_id) for one in family if one.depends_on]
    return graph(nodes, edges, label="Which manifests wait for which")


def _rest(manifest: Manifest) -> str | None:
    """Why it does not fire, in a word."""
    if manifest.retired_at is not None:
        return "retired"
    return None if manifest.enabled else "paused"
