"""What is promised is listed, in order, and there."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize("module", ["trax", "trax.testing"])
def test_the_promised_names_are_sorted_and_importable(module: str) -> None:
    promised = importlib.import_module(module)

    assert promised.__all__ == sorted(promised.__all__)
    assert [name for name in promised.__all__ if not hasattr(promised, name)] == []
    assert promised.__doc__
