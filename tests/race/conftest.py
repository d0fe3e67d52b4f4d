from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture
def threads() -> Generator[ThreadPoolExecutor]:
    """For those who race."""
    with ThreadPoolExecutor(4) as pool:
        yield pool
