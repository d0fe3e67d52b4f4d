"""Values in the audit log: without secrets, and cut."""

from __future__ import annotations

import json

from trax.masking import HIDDEN
from trax.records.audit import MAX_BYTES, to_stored_json


def test_values_with_secret_names_are_masked() -> None:
    value = {
        "password": "x",
        "API_KEY": "y",
        "listen_url": "postgresql://db/jobs",
        "nested": [{"auth_token": "z", "table": "users", "token_count": 3}],
        "secret": None,
    }

    assert json.loads(to_stored_json(value) or "") == {
        "password": HIDDEN,
        "API_KEY": HIDDEN,
        "listen_url": HIDDEN,
        "nested": [{"auth_token": HIDDEN, "table": "users", "token_count": 3}],
        "secret": None,
    }


def test_a_long_value_is_replaced_by_a_note() -> None:
    assert to_stored_json({"note": "x" * MAX_BYTES}) == json.dumps({"_truncated": True})
    assert to_stored_json({"note": "x"}) == '{"note": "x"}'
    assert to_stored_json(None) is None
