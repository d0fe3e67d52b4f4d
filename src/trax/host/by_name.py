"""Run a train by name with plain data, and return the record of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.errors import NotFound
from trax.host.recorded import RecordedRun
from trax.host.wishes import decode_plain_input
from trax.store import metadata

if TYPE_CHECKING:
    from trax.host.parts import Parts
    from trax.records import Metadata


async def run_by_name(parts: Parts, name: str, value: Any) -> Metadata:
    """Run it now, in this process. Errors of the run are in its record; only errors before it are raised."""
    train = parts.trains.get(name)
    codec = parts.parameters.input_codec(train)
    decoded = decode_plain_input(value, train, codec, parts.settings)
    store = await parts.store.open()
    run = RecordedRun(parts, store, train)
    try:
        await run.run(decoded)
    except Exception:
        if run.metadata_id is None:
            raise
    found = None if run.metadata_id is None else await store.ask(metadata.get, run.metadata_id)
    if found is None:
        raise NotFound(f"train {name!r}: the record of this run was already deleted")
    return found
