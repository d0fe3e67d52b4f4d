"""JSON responses from records, without validating them again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter
from pydantic_core import to_json
from starlette.responses import Response

if TYPE_CHECKING:
    from trax.web.masking import Mask

BRIEF_BYTES: Final = 4096
"""Longer inputs and outputs are omitted from lists; the single record has them."""
VALUES: Final = ("input", "output")


class JsonWriter:
    """Serialises values of one type as a JSON response."""

    def __init__(self, kind: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def __call__(self, value: Any, status: int = 200) -> Response:
        return Response(self._adapter.dump_json(value), status, media_type="application/json")


def mask_record(record: Any, mask: Mask) -> Any:
    """Mask the secrets in a record's input and output."""
    return replace(record, **{name: mask(getattr(record, name)) for name in VALUES if hasattr(record, name)})


def summarize_record(record: Any, mask: Mask) -> Any:
    """Mask a record for a list, and omit long values."""
    values = {name: getattr(record, name) for name in VALUES if hasattr(record, name)}
    return replace(record, **{name: _shorten(mask(value)) for name, value in values.items()})


def _shorten(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    size = len(to_json(value))
    return value if size <= BRIEF_BYTES else {"_omitted": True, "bytes": size}
