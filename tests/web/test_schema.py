"""The API keeps what its document promises, whatever it is asked."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from tests.support.control_room import OPERATOR, access, railway

from trax.web import create

# By name: its own types are partly unknown.
checks: Any = import_module("schemathesis.checks")
conformance: Any = import_module("schemathesis.specs.openapi.checks")
documents: Any = schemathesis.openapi

PROGRAM = {"Authorization": f"Bearer {OPERATOR}"}
CHECKS: list[Any] = [
    checks.not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
]


SUSPICION = "hypothesis.errors.HypothesisDeprecationWarning"
LEFT_OUT = ["/api/v1/events"]  # has no end
web = create(railway("memory://"), access=access())
schema: Any = documents.from_asgi("/api/v1/openapi.json", web, headers=PROGRAM).exclude(path=LEFT_OUT)


# Some thread of a library may draw a random number while an example is made: hypothesis suspects the example.
@pytest.mark.filterwarnings(
    "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
)
@schema.parametrize()
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_every_answer_is_as_documented(case: Any) -> None:
    case.call_and_validate(headers=PROGRAM, checks=CHECKS)
