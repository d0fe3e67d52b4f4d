from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trax.train import memory

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _only_own_protocols() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Protocols are wired for the whole process; a test must not see those of another."""
    before = dict(memory._wired_protocols)  # pyright: ignore[reportPrivateUsage]
    yield
    memory._wired_protocols.clear()  # pyright: ignore[reportPrivateUsage]
    memory._wired_protocols.update(before)  # pyright: ignore[reportPrivateUsage]
    memory.runtime_keys.cache_clear()
