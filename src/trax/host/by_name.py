"""Running a train that was named, with plain data, for callers who want its record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.errors import NotFound
from trax.host.recorded import RecordedRun
from trax.host.wishes import value_of_plain
from trax.store import metadata

if TYPE_CHECKING:
    from trax.host.parts import Parts
    from trax.records import Metadata


async def run_by_name(parts: Parts, name: str, value: Any) -> Metadata:
    """Run it here and now. What it raises is in its record; only what keeps it from beginning is raised."""
    train = parts.trains.get(name)
    codec = parts.parameters.of_input(train)
    given = value_of_plain(value, train, codec, parts.settings)
    store = await parts.store.opened()
    run = RecordedRun(parts, store, train)
    try:
        await run.of(given)
    except Exception:
        if run.metadata_id is None:
            raise
    found = None if run.metadata_id is None else await store.ask(metadata.get, run.metadata_id)
    if found is None:
        raise NotFound(f"the record of this run of {name!r} is gone already")
    return found
