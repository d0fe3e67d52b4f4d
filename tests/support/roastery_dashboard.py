"""The dashboard of the roastery, in a test: its clock, its app, and a reader of its pages."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.support.html_reader import Reader
from tests.support.roastery import Roastery
from tests.support.web_app import browser

from trax.testing import Harness
from trax.web import Access, create

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
BILL = {"customer": {"name": "Ada"}, "lines": [{"sku": "sidamo"}], "token": "hunter2"}


class RoasteryDashboard:
    """The roastery with its clock, and somebody who looks at it."""

    def __init__(self, world: Roastery, harness: Harness, reader: Reader) -> None:
        self.world = world
        self.harness = harness
        self.app = harness.app
        self.reader = reader
        self.open = reader.open
        self.send = reader.send

    async def a_day_passes(self) -> None:
        """Everything runs at least once; some of it fails."""
        for name in ("Ada", "Bob", EVIL):
            await self.app.queue("charge_card", {**BILL, "customer": {"name": name}, "note": name})
        await self.harness.run_until_idle()
        await self.harness.advance(hours=1)
        await self.harness.run_until_idle()


@asynccontextmanager
async def roastery_dashboard(
    url: str, entry: Access | None = None, **options: Any
) -> AsyncGenerator[RoasteryDashboard]:
    world = Roastery(url)
    async with Harness(world.app(), now=NOON) as harness:
        web = create(harness.app, access=entry or Access(allow_anonymous=True), **options)
        async with browser(web) as client:
            yield RoasteryDashboard(world, harness, Reader(client))
