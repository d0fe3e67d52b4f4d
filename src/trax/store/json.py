"""JSON text as a plain value, for records that people look at."""

from __future__ import annotations

import json
from typing import Any


def parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)
