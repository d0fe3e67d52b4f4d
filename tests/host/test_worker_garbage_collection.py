from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from trax.worker.loop import YOUNG_THRESHOLD, freeze_loaded_objects

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(autouse=True)
def collector() -> Generator[None]:
    before = gc.get_threshold()
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_loaded_objects_are_frozen_and_new_ones_are_collected() -> None:
    there = [[number] for number in range(1000)]
    assert gc.get_freeze_count() == 0

    freeze_loaded_objects()

    assert gc.get_freeze_count() > len(there)
    assert gc.get_threshold()[0] == YOUNG_THRESHOLD
    assert not any(one is there for one in gc.get_objects())
    circle: list[object] = []
    circle.append(circle)
    del circle
    assert gc.collect() >= 1
