"""Parse a pickle without running it.

A pickle is a program: `pickle.loads` imports modules and calls what it names. Here every name becomes a stub,
and calling a stub only records the arguments. Nothing is imported, and no foreign code runs.
"""

from __future__ import annotations

import datetime as dt
import io
import pickle
from typing import TYPE_CHECKING, Any, Final, Self, cast

from trax.errors import DefinitionError
from trax.schedule.zones import zone_named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

LONGEST: Final = 1 << 20
DEPTH: Final = 4
"""How deep a zone name is searched in a stub: a pickle may contain itself."""
PLAIN: Final = {"date": dt.date, "time": dt.time, "timedelta": dt.timedelta, "timezone": dt.timezone}


class PickleStub:
    """A stub for an object in a pickle: its origin, call arguments and attributes."""

    origin = ""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: dict[str, Any] = {}

    def __new__(cls, *_arguments: Any) -> Self:
        return super().__new__(cls)

    def __call__(self, *arguments: Any) -> PickleStub:
        return PickleStub(self, *arguments)

    def __setstate__(self, state: Any) -> None:
        """Attributes come as a mapping, or as two mappings for a class with slots."""
        parts = cast("tuple[Any, ...]", state if isinstance(state, tuple) else (state,))
        self.state = {}
        for part in parts:
            if isinstance(part, dict):
                self.state |= cast("dict[str, Any]", part)

    def __repr__(self) -> str:
        return self.origin or "…"


def parse_pickle(document: bytes) -> Any:
    """The plain values of a pickle, with a stub for every other object."""
    if len(document) > LONGEST:
        raise DefinitionError(f"pickle of {len(document)} bytes is too large (at most {LONGEST})")
    try:
        return _Reader(io.BytesIO(document)).load()
    except Exception as error:  # noqa: BLE001 - a broken or hostile pickle can raise anything
        raise DefinitionError(f"pickle cannot be read without running it ({error})") from None


def find_zone(value: Any) -> ZoneInfo | dt.timezone | None:
    """The time zone in a stub, of any library: the first text in it that names a zone."""
    if isinstance(value, dt.timezone):
        return value
    for text in _texts(value):
        try:
            return zone_named(text)
        except DefinitionError:
            continue
    return None


class _Reader(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == "datetime":
            return _moment if global_name == "datetime" else PLAIN.get(global_name, PickleStub)
        return type("Note", (PickleStub,), {"origin": f"{module_name}:{global_name}"})


def _moment(state: bytes, zone: Any = None) -> dt.datetime:
    """Build a datetime; a stub of a time zone becomes a real one."""
    moment: Any = dt.datetime
    return moment(state, find_zone(zone))


def _texts(value: Any, depth: int = DEPTH) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, PickleStub) and depth:
        for argument in (*value.arguments, *value.state.values()):
            yield from _texts(argument, depth - 1)
