"""Parse stored JSON for records shown to users, with secrets masked."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

from trax.masking import SECRET_KEY, mask_stored


def parse_json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        value = from_json(text)
    except ValueError:  # a lone surrogate cannot be encoded in a response: it becomes `?`
        value = from_json(json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace"))
    return mask_stored(value) if SECRET_KEY in text else value
