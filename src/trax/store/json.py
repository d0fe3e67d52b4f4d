"""JSON text as a plain value, for records that people look at. Secrets in it are covered."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

from trax.masking import SECRET, cover_stored


def parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        value = from_json(text)
    except ValueError:  # half of a surrogate pair is no text, and no answer could carry it: it becomes `?`
        value = from_json(json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace"))
    return cover_stored(value) if SECRET in text else value
