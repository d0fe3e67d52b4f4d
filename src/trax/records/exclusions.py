"""Exclusions as JSON text and back."""

from __future__ import annotations

from functools import lru_cache

from pydantic import TypeAdapter

from trax.records.when import Exclusion

_adapter: TypeAdapter[tuple[Exclusion, ...]] = TypeAdapter(tuple[Exclusion, ...])


def exclusions_to_json(exclusions: tuple[Exclusion, ...]) -> str | None:
    """None stands for no exclusions at all."""
    return _adapter.dump_json(exclusions).decode() if exclusions else None


@lru_cache(maxsize=4096)
def exclusions_from_json(text: str | None) -> tuple[Exclusion, ...]:
    """Many manifests share the same few exclusions, and each is read at every look: remember them."""
    return _adapter.validate_json(text) if text else ()
