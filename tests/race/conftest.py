"""Threads for those who race, and a database whose history is verified after each test."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.support.verified import assert_clean

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture
def threads() -> Generator[ThreadPoolExecutor]:
    """For those who race."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def postgres_url(postgres_url: str) -> Generator[str]:
    yield postgres_url
    assert_clean(postgres_url)
