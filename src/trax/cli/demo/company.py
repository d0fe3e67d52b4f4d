"""The example app of the demo: jobs of a small coffee company, sped up so that an hour takes a second.

It uses only the public API. Random numbers are seeded, so every run is the same.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

from pydantic import BaseModel

from trax import Group, Retry, Train, Trax, current, every, exclude, junction

EMAILS: Final = "emails"
EMAILS_AT_ONCE: Final = 3
SUPPORT: Final = Group("support", priority=20)
LETTERS: Final = 200
OUTAGE: Final = 2
"""How many attempts in a row fail to reach the warehouse."""
LOW: Final = 20
SECOND: Final = timedelta(seconds=1)
CLOSED_AFTER: Final = 6 * SECOND
CLOSED_FOR: Final = 6 * SECOND


class Shop(BaseModel):
    city: str = "Bremen"


class Issue(BaseModel):
    title: str


class Email(BaseModel):
    number: int
    to: str
    subject: str


class Question(BaseModel):
    text: str


class Rates(BaseModel):
    file: Path


class Goods(BaseModel):
    name: str
    kilos: int


class Sales(BaseModel):
    cups: int


@dataclass
class Books:
    """In-memory data of the trains; a real company would have databases."""

    guests: Random = field(default_factory=lambda: Random(7))  # noqa: S311 - seeded, to repeat each run
    baristas: Random = field(default_factory=lambda: Random(7))  # noqa: S311
    cups: int = 0
    turnover: float = 0.0
    kilos: dict[str, int] = field(default_factory=lambda: {"beans": LOW + 4, "milk": 2 * LOW})

    def use_supplies(self) -> list[str]:
        """Use some of every good; returns those that have run low."""
        for name in self.kilos:
            self.kilos[name] -= self.baristas.randint(5, 15)
        return [name for name, left in self.kilos.items() if left < LOW]


@dataclass(frozen=True, slots=True)
class Company:
    """The app, and the facts that the report needs."""

    app: Trax
    closed_from: datetime
    closed_until: datetime
    """The end of the excluded window, in which no back-up runs."""
    convert_prices: Train[Rates, int]
    rates: Path
    """The file that convert_prices needs; without it the job becomes a dead letter."""

    async def queue_price_job(self) -> None:
        """Enqueue the job whose file is missing."""
        await self.app.queue(self.convert_prices, Rates(file=self.rates))


def build_company(url: str, folder: Path, *, at: datetime) -> Company:
    """Declare the app. The database is not touched yet."""
    app = Trax(url, max_active_jobs=6, local_worker_count=6, shutdown_timeout=5 * SECOND)
    app.provide(Books, Books())
    closed_from = at.replace(microsecond=0) + CLOSED_AFTER
    closed_until = closed_from + CLOSED_FOR
    _sell(app)
    _write_to_customers(app)
    _keep_in_stock(app)
    _keep_safe(app, closed_from, closed_until)
    return Company(app, closed_from, closed_until, _convert_prices(app), folder / "rates.csv")


def _sell(app: Trax) -> None:
    """A chain: each train runs when the one before it has succeeded."""

    @junction
    async def read_till(_shop: Shop, books: Books) -> Sales:
        await asyncio.sleep(0.2)
        return Sales(cups=books.guests.randint(80, 120))

    @junction
    def note_cups(sales: Sales, books: Books) -> Sales:
        books.cups += sales.cups
        return sales

    @app.train
    async def transform_sales(_shop: Shop, books: Books) -> float:
        await asyncio.sleep(0.2)
        books.turnover = books.cups * 3.5
        return books.turnover

    @app.train
    def publish_report(shop: Shop, books: Books) -> str:
        return f"{shop.city} sold {books.cups} cups for {books.turnover:.2f} EUR"

    extract_sales = app.train("extract_sales", read_till >> note_cups)
    chain = app.schedule(extract_sales, "extract-sales", Shop(), every(seconds=5), group="etl")
    chain = chain.include(transform_sales, "transform-sales", Shop(), group="etl")
    chain.then_include(publish_report, "publish-report", Shop(), group="etl")


def _write_to_customers(app: Trax) -> None:
    """Many jobs under a group limit, and urgent jobs that overtake them."""
    app.group(EMAILS, max_active_jobs=EMAILS_AT_ONCE)

    @app.train(group=EMAILS)
    async def send_email(email: Email) -> None:
        await asyncio.sleep(Random(email.number).uniform(0.08, 0.16))  # noqa: S311

    @app.train
    async def write_newsletter(issue: Issue) -> int:
        letters = [
            Email(number=each, to=f"guest{each}@example.com", subject=issue.title) for each in range(LETTERS)
        ]
        return len(await app.queue_many(send_email, letters))

    @app.train
    async def answer_customer(question: Question) -> str:
        await asyncio.sleep(0.1)
        return f"{question.text} Yes."

    app.schedule(write_newsletter, "newsletter", Issue(title="New beans"), every(seconds=30))
    app.schedule(
        answer_customer, "support-line", Question(text="Are you open?"), every(seconds=2), group=SUPPORT
    )


def _keep_in_stock(app: Trax) -> None:
    """Retries, dormant dependents, and a long run with progress."""

    @app.train(retry=Retry(max_attempts=OUTAGE + 2, delay=SECOND, multiplier=1.0))
    async def sync_warehouse(_shop: Shop) -> str:
        run = current()
        if run is not None and run.attempt <= OUTAGE:
            raise ConnectionError("the warehouse does not respond")
        return "in sync"

    @app.train
    async def check_stock(_shop: Shop, books: Books) -> list[str]:
        low, run = books.use_supplies(), current()
        if run is not None:
            await run.activate_many([(f"order-{name}", Goods(name=name, kilos=30)) for name in low])
        return low

    @app.train
    async def order_goods(goods: Goods, books: Books) -> int:
        await asyncio.sleep(0.3)
        books.kilos[goods.name] += goods.kilos
        return books.kilos[goods.name]

    @app.train
    async def roast_beans(_shop: Shop) -> None:
        run = current()
        for minute in range(20):
            await asyncio.sleep(0.15)
            if run is not None:
                await run.progress((minute + 1) / 20, f"minute {minute + 1} of 20")

    app.schedule(sync_warehouse, "sync-warehouse", Shop(), every(seconds=8))
    app.schedule(roast_beans, "roast-beans", Shop(), every(seconds=10))
    stock = app.schedule(check_stock, "check-stock", Shop(), every(seconds=3))
    for name in ("beans", "milk"):
        stock.include(order_goods, f"order-{name}", Goods(name=name, kilos=0), dormant=True)


def _keep_safe(app: Trax, closed_from: datetime, closed_until: datetime) -> None:
    """A schedule with an excluded time window."""

    @app.train
    async def back_up(_shop: Shop) -> None:
        await asyncio.sleep(0.1)

    window = exclude.time_window(closed_from.time(), closed_until.time())
    app.schedule(back_up, "back-up", Shop(), every(seconds=2), exclude=window)


def _convert_prices(app: Trax) -> Train[Rates, int]:
    """A job that becomes a dead letter."""

    @app.train(retry=Retry(max_attempts=2, delay=SECOND))
    def convert_prices(rates: Rates) -> int:
        if not rates.file.exists():
            raise FileNotFoundError(f"{rates.file} is missing")
        return len(rates.file.read_text(encoding="utf-8").splitlines())

    return convert_prices
