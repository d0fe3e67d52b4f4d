"""Records as JSON, written at once: they are right already, and need no second look."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter
from pydantic_core import to_json
from starlette.responses import Response

if TYPE_CHECKING:
    from trax.web.masking import Mask

BRIEF_BYTES: Final = 4096
"""In lists, an input or output that is longer gives way to a note: ask for the record itself."""
VALUES: Final = ("input", "output")


class Writes:
    """Writes values of one declared type as the body of an answer."""

    def __init__(self, kind: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def __call__(self, value: Any, status: int = 200) -> Response:
        return Response(self._adapter.dump_json(value), status, media_type="application/json")


def shown(record: Any, mask: Mask) -> Any:
    """A record whose input and output are as they may be seen."""
    return replace(record, **{name: mask(getattr(record, name)) for name in VALUES if hasattr(record, name)})


def brief(record: Any, mask: Mask) -> Any:
    """The same for a list: what is long is left out."""
    values = {name: getattr(record, name) for name in VALUES if hasattr(record, name)}
    return replace(record, **{name: _shortened(mask(value)) for name, value in values.items()})


def _shortened(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    size = len(to_json(value))
    return value if size <= BRIEF_BYTES else {"_omitted": True, "bytes": size}
