"""What a pickle says, without running it.

A pickle is a program: reading one in the ordinary way imports modules and calls whatever it names. Here
every name it mentions becomes a note of that name, and calling a note only notes what it was called with.
Nothing is imported, and nothing of anybody's is run.
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
"""How far a name is looked for in a note: a pickle may hold itself."""
PLAIN: Final = {"date": dt.date, "time": dt.time, "timedelta": dt.timedelta, "timezone": dt.timezone}


class Note:
    """A thing that a pickle names: where it is from, what it was called with, and its attributes."""

    origin = ""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: dict[str, Any] = {}

    def __new__(cls, *_arguments: Any) -> Self:
        return super().__new__(cls)

    def __call__(self, *arguments: Any) -> Note:
        return Note(self, *arguments)

    def __setstate__(self, state: Any) -> None:
        """Attributes come as a mapping, or as two of them where a class has slots."""
        parts = cast("tuple[Any, ...]", state if isinstance(state, tuple) else (state,))
        self.state = {}
        for part in parts:
            if isinstance(part, dict):
                self.state |= cast("dict[str, Any]", part)

    def __repr__(self) -> str:
        return self.origin or "…"


def read_inert(document: bytes) -> Any:
    """The plain values of a pickle, with a Note for each thing that is not plain."""
    if len(document) > LONGEST:
        raise DefinitionError(f"a pickle of {len(document)} bytes is not looked into (at most {LONGEST})")
    try:
        return _Reader(io.BytesIO(document)).load()
    except Exception as broken:  # noqa: BLE001 - whatever a broken or hostile document leads to
        raise DefinitionError(f"its pickle cannot be read without running it ({broken})") from None


def zone_in(value: Any) -> ZoneInfo | dt.timezone | None:
    """The time zone that a note stands for, whichever library made it: the first name that is one's."""
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
            return _moment if global_name == "datetime" else PLAIN.get(global_name, Note)
        return type("Note", (Note,), {"origin": f"{module_name}:{global_name}"})


def _moment(state: bytes, zone: Any = None) -> dt.datetime:
    """A datetime takes a time zone and no note of one."""
    moment: Any = dt.datetime
    return moment(state, zone_in(zone))


def _texts(value: Any, depth: int = DEPTH) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Note) and depth:
        for argument in (*value.arguments, *value.state.values()):
            yield from _texts(argument, depth - 1)
