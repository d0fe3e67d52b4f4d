"""What the audit keeps of values: no secret, and not too much."""

from __future__ import annotations

import json

from trax.masking import HIDDEN
from trax.records.audit import BYTES_AT_MOST, kept


def test_what_is_named_like_a_secret_is_masked_as_everywhere() -> None:
    value = {
        "password": "x",
        "API_KEY": "y",
        "listen_url": "postgresql://db/jobs",
        "nested": [{"auth_token": "z", "table": "users", "token_count": 3}],
        "secret": None,
    }

    assert json.loads(kept(value) or "") == {
        "password": HIDDEN,
        "API_KEY": HIDDEN,
        "listen_url": HIDDEN,
        "nested": [{"auth_token": HIDDEN, "table": "users", "token_count": 3}],
        "secret": None,
    }


def test_what_is_long_gives_way_to_a_note() -> None:
    assert kept({"note": "x" * BYTES_AT_MOST}) == json.dumps({"_truncated": True})
    assert kept({"note": "x"}) == '{"note": "x"}'
    assert kept(None) is None
