"""A small coffee roastery: an app with something of everything that the control room shows."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from trax import Retry, Trax, cron, current, every, exclude, junction

logger = logging.getLogger("roastery")


class ImportOrders(BaseModel):
    """Which orders to fetch."""

    source: Literal["shop", "market"]
    day: date | None = None
    limit: Annotated[int, Field(ge=1, le=500, description="How many orders at most.")] = 100
    dry_run: bool = False


class Orders(BaseModel):
    """What was fetched."""

    count: int


class Stored(BaseModel):
    """What was kept."""

    rows: int
    source: str


class Customer(BaseModel):
    """Who pays."""

    name: str
    email: str | None = None


class Line(BaseModel):
    """What they pay for."""

    sku: str
    bags: int = 1


class Invoice(BaseModel):
    """A bill with nested fields, a list and a secret."""

    customer: Customer
    lines: list[Line]
    note: str | None = None
    token: str | None = None


class Roast(BaseModel):
    """A batch of beans."""

    beans: str
    minutes: float = 12.5


@dataclass
class Roastery:
    """The app and the switches of the world around it."""

    url: str
    card_works: bool = False
    release: asyncio.Event = field(default_factory=asyncio.Event)
    """Until it is set, a roast that asks for patience goes on."""

    def app(self, **settings: Any) -> Trax:
        app = Trax(self.url, host_labels={"zone": "b", "team": "beans"}, **settings)
        self._define(app)
        return app

    def _define(self, app: Trax) -> None:
        import_orders = app.train("import_orders", fetch >> parse >> store, timeout=timedelta(minutes=10))

        @app.train(group="billing", retry=Retry(max_attempts=1))
        async def charge_card(invoice: Invoice) -> str:
            logger.info("charging %s for %d lines", invoice.customer.name, len(invoice.lines))
            if not self.card_works:
                logger.warning("the bank did not like it")
                raise PermissionError(f"card of order {len(invoice.customer.name) * 4711} was refused")
            return f"{invoice.customer.name} has paid"

        @app.train
        async def roast_batch(roast: Roast) -> str:
            run = current()
            if run is not None:
                await run.progress(0.4, f"{roast.beans}: first crack")
            if roast.beans == "patience":
                await self.release.wait()
            return f"{roast.beans} roasted for {roast.minutes} minutes"

        @app.train
        def close_day(shop: str) -> dict[str, float]:
            return {shop: 1250.5}

        @app.train
        async def daily_report(day: str) -> str:
            return f"report of {day}"

        (
            app.schedule(
                import_orders, "import-shop", ImportOrders(source="shop"), every(minutes=30), group="orders"
            )
            .include(close_day, "close-day", "shop", group="books")
            .then_include(daily_report, "report-day", "today", group="reports")
        )
        market = ImportOrders(source="market", limit=500)
        app.schedule(import_orders, "import-market", market, every(hours=2), group="orders")
        app.schedule(
            roast_batch,
            "roast-morning",
            Roast(beans="Sidamo"),
            cron("30 6 * * mon-sat", tz="Europe/Berlin"),
            group="roastery",
            exclude=[exclude.dates("2026-12-25"), exclude.time_window("22:00", "05:00")],
            start="next_occurrence",
        )
        special = Roast(beans="Yirgacheffe")
        app.schedule(roast_batch, "roast-on-demand", special, "on_demand", group="roastery")
        app.group("orders", max_active_jobs=3, priority=10)
        app.group("roastery", max_active_jobs=1)


@junction
async def fetch(job: ImportOrders) -> Orders:
    logger.info("fetching from %s", job.source)
    return Orders(count=job.limit // 2)


@junction
def parse(orders: Orders, job: ImportOrders) -> list[str]:
    return [f"{job.source}-{number}" for number in range(orders.count)]


@junction
def store(rows: list[str], job: ImportOrders) -> Stored:
    logger.info("%d rows stored", len(rows))
    return Stored(rows=len(rows), source=job.source)
