"""What the audit keeps of values: no secret, and not too much."""

from __future__ import annotations

import json

from trax.records.audit import BYTES_AT_MOST, MASK, kept, masked


def test_what_is_named_like_a_secret_is_masked() -> None:
    value = {
        "password": "x",
        "API_KEY": "y",
        "nested": [{"auth_token": "z", "table": "users"}],
        "secret": None,
    }

    assert masked(value) == {
        "password": MASK,
        "API_KEY": MASK,
        "nested": [{"auth_token": MASK, "table": "users"}],
        "secret": None,
    }


def test_what_is_long_gives_way_to_a_note() -> None:
    assert kept({"note": "x" * BYTES_AT_MOST}) == json.dumps({"_truncated": True})
    assert kept({"note": "x"}) == '{"note": "x"}'
    assert kept(None) is None
