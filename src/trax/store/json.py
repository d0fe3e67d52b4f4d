"""JSON text as a plain value, for records that people look at."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json


def parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return from_json(text)
    except ValueError:  # half of a surrogate pair: not proper text, but whoever wrote it can have it back
        return json.loads(text)
