"""Convert exclusions to JSON text and back."""

from __future__ import annotations

from functools import lru_cache

from pydantic import TypeAdapter

from trax.records.when import Exclusion

_adapter: TypeAdapter[tuple[Exclusion, ...]] = TypeAdapter(tuple[Exclusion, ...])


def exclusions_to_json(exclusions: tuple[Exclusion, ...]) -> str | None:
    """JSON text; None: no exclusions."""
    return _adapter.dump_json(exclusions).decode() if exclusions else None


@lru_cache(maxsize=4096)
def exclusions_from_json(text: str | None) -> tuple[Exclusion, ...]:
    """Parse exclusions; cached, since many manifests share the same few, and every check reads them."""
    return _adapter.validate_json(text) if text else ()
