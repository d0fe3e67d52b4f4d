"""A data team copies 200 tables: each has a schedule and records of its own, and four run at once.

A copy that finds changes wakes the load of its table, with what it found; the others wake nothing. The limit
holds for all servers together, however many run this.
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from trax import Group, Item, Metadata, Trax, current, every

TABLES = [f"t{number:03}" for number in range(200)]


class Copy(BaseModel):
    table: str


class Load(BaseModel):
    table: str
    rows: int = 0


class SideBySide:
    """Counts how many are inside at once."""

    now = most = 0

    def __enter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        self.now -= 1


app = Trax("memory://", local_worker_count=20)
side_by_side = SideBySide()
ended = asyncio.Queue[Metadata]()


@app.train
async def copy_table(job: Copy) -> int:
    with side_by_side:
        await asyncio.sleep(0.01)  # here one would wait for the source
    changed = 7 if job.table.endswith("0") else 0
    run = current()
    if changed and run is not None:
        await run.activate(f"load-{job.table}", Load(table=job.table, rows=changed))
    return changed


@app.train
async def load_table(job: Load) -> int:
    return job.rows


app.schedule_many(
    copy_table,
    "copy",
    {table: Copy(table=table) for table in TABLES},
    every(minutes=5),
    group=Group("copy", max_active_jobs=4, priority=20),
).include_many(
    load_table,
    "load",
    [Item(table, Load(table=table), depends_on=f"copy-{table}") for table in TABLES],
    dormant=True,
)


@app.on_completed
def note(run: Metadata) -> None:
    ended.put_nowait(run)


async def main() -> None:
    changed = sum(table.endswith("0") for table in TABLES)
    async with app:
        runs = [await ended.get() for _ in range(len(TABLES) + changed)]

    loads = [run.output for run in runs if run.train == "load_table"]
    print(f"{len(runs) - len(loads)} tables copied, at most {side_by_side.most} at once")
    print(f"{len(loads)} of them had changed: {sum(loads)} rows loaded")


if __name__ == "__main__":
    asyncio.run(main())
