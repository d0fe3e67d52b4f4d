"""The API keeps what its document promises, whatever it is asked."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast
from urllib.parse import unquote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from tests.support.hostile import IN_ADDRESSES, IN_BODIES
from tests.support.web_app import OPERATOR, VIEWER, access, railway, web_app

from trax.web import create
from trax.web.api.document import CHANGE_METHODS

# By name: its own types are partly unknown.
checks: Any = import_module("schemathesis.checks")
conformance: Any = import_module("schemathesis.specs.openapi.checks")
TestPhase: Any = import_module("schemathesis.generation.meta").TestPhase
documents: Any = schemathesis.openapi

PROGRAM = {"Authorization": f"Bearer {OPERATOR}"}
ROLES = {"nobody": {}, "viewer": {"Authorization": f"Bearer {VIEWER}"}, "operator": PROGRAM}
ODD = sorted({unquote(value) for value in IN_ADDRESSES} - {"", ".."})
CHECKS: list[Any] = [
    checks.not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
]


LEFT_OUT = ["/api/v1/events"]  # has no end
web = create(railway("memory://"), access=access())
schema: Any = documents.from_asgi("/api/v1/openapi.json", web, headers=PROGRAM).exclude(path=LEFT_OUT)


def one_odd(values: Any, odd: Any) -> st.SearchStrategy[Any]:
    """The same values, one of them perhaps replaced by something that breaks programs."""
    given = cast("dict[str, Any]", values) if isinstance(values, dict) else {}
    if not given:
        return st.just(cast("Any", values))
    names = sorted(given)
    return st.sampled_from(names).flatmap(
        lambda name: st.sampled_from([given[name], *odd]).map(lambda value: {**given, name: value})
    )


@schema.hook
def flatmap_query(context: Any, query: Any) -> st.SearchStrategy[Any]:  # noqa: ARG001 - called with it
    return one_odd(query, ODD)


@schema.hook
def flatmap_path_parameters(context: Any, path_parameters: Any) -> st.SearchStrategy[Any]:  # noqa: ARG001
    return one_odd(path_parameters, ODD)


@schema.hook
def flatmap_body(context: Any, body: Any) -> st.SearchStrategy[Any]:  # noqa: ARG001
    return one_odd(body, IN_BODIES)


# Some thread of a library may draw a random number while an example is made: hypothesis suspects the example.
@pytest.mark.filterwarnings(
    "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
)
@pytest.mark.parametrize("roles", [ROLES], ids=["everybody"])  # without a parameter all have one name
@schema.parametrize()
@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_every_response_conforms_to_the_schema_for_every_role(
    case: Any, roles: dict[str, dict[str, str]]
) -> None:
    """Every boundary of every value by an operator, and what is drawn beside by everybody."""
    is_open = case.path == "/health/live"  # to anybody, and it takes no change
    asking = {"operator": PROGRAM} if case.meta.phase.name == TestPhase.COVERAGE else roles
    for role, headers in asking.items():
        answer = case.call(headers=headers)

        case.validate_response(answer, checks=CHECKS)
        if role == "nobody" and not is_open:
            assert answer.status_code == 401
        if role == "viewer" and case.method.lower() in CHANGE_METHODS and not is_open:
            assert answer.status_code == 403


async def state_of(room: Any) -> list[Any]:
    """Everything that a change could change."""
    app = room.app
    return [
        await app.settings.get(),
        await app.settings.origins(),
        await app.manifests.list(retired=None),
        await app.groups.list(),
        await app.work_queue.list(),
        await app.executions.list(admin=True),
        await app.dead_letters.list(),
        await app.audit.list(),
    ]


@pytest.mark.parametrize("role", ["nobody", "viewer"])
async def test_viewers_and_visitors_change_nothing_with_any_route(url: str, role: str) -> None:
    bodies: tuple[Any, ...] = (
        {},
        {"ids": [1, 2, 3]},
        {"all": True, "note": "x"},
        {"input": {"customer": "Ada"}},
        {"max_active_jobs": 1},
        {"names": []},
        {"force": True},
    )
    async with web_app(url) as room:
        await room.app.queue("serve_coffee", {"customer": "Ada", "cups": 10})
        await room.harness.run_until_idle()
        await room.app.queue("serve_coffee", {"customer": "Ada"})
        before = await state_of(room)
        changing = [(verb, path) for path, verbs in room.web.openapi()["paths"].items() for verb in verbs]
        for verb, path in changing:
            for body in bodies if verb != "get" else ():
                there = path.replace("{name}", "bar").replace("{external_id}", "ada")
                for word in ("{metadata_id}", "{entry_id}", "{dead_letter_id}", "{audit_id}"):
                    there = there.replace(word, "1")
                answer = await room.api.request(
                    verb, there, json=body, headers={"Authorization": "", **ROLES[role]}
                )
                assert answer.status_code in {401, 403}, (verb, there)

        assert len(changing) > 50
        assert await state_of(room) == before
