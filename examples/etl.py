"""A nightly ETL chain. Each step runs after the success of the one before; bad rows wake a job of their own.

    extract ──► transform ──► publish        dependents: one success starts the next
                    └┄┄┄┄┄┄► quarantine      dormant: woken by transform, with what it found

Trax starts the steps and keeps their records. The data itself goes where data belongs: here, a warehouse.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pydantic import BaseModel

from trax import Metadata, Trax, cron, current

EXPORT = ["ada,3", "bob,two", "grace,5", "eve,"]


class Day(BaseModel):
    date: str


class BadRows(BaseModel):
    rows: list[str]


@dataclass
class Warehouse:
    raw: list[str] = field(default_factory=list[str])
    cups: dict[str, int] = field(default_factory=dict[str, int])


app = Trax("memory://")
app.provide(Warehouse, Warehouse(), close=False)
every_end = asyncio.Queue[Metadata]()


@app.train
def extract(day: Day, warehouse: Warehouse) -> str:
    warehouse.raw = EXPORT.copy()
    return f"{len(warehouse.raw)} rows of {day.date}"


@app.train
async def transform(_day: Day, warehouse: Warehouse) -> str:
    rows = [row.split(",") for row in warehouse.raw]
    warehouse.cups = {customer: int(cups) for customer, cups in rows if cups.isdigit()}
    bad = [f"{customer},{cups}" for customer, cups in rows if not cups.isdigit()]
    run = current()
    if bad and run is not None:
        await run.activate("quarantine", BadRows(rows=bad))
    return f"{len(warehouse.cups)} good, {len(bad)} bad"


@app.train
def publish(_day: Day, warehouse: Warehouse) -> str:
    return f"{sum(warehouse.cups.values())} cups sold"


@app.train
def quarantine(bad: BadRows) -> str:
    return f"somebody should look at {bad.rows}"


today = Day(date="2027-03-01")
nightly = cron("0 2 * * *", tz="Europe/Berlin")
extracted = app.schedule(extract, "extract", today, nightly, start="now")  # tonight would be long to wait
transformed = extracted.include(transform, "transform", today)
transformed.then_include(publish, "publish", today)
transformed.then_include(quarantine, "quarantine", BadRows(rows=[]), dormant=True)


@app.on_completed
def tell(run: Metadata) -> None:
    print(f"{run.manifest}: {run.output}")
    every_end.put_nowait(run)


async def main() -> None:
    async with app:  # it runs at once, then every night
        for _ in range(4):
            await every_end.get()


if __name__ == "__main__":
    asyncio.run(main())
