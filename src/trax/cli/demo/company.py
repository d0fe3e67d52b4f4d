"""A small coffee company and what it does all day, sped up so that its hours are seconds.

All of it is what a user would write. What looks like chance comes from a seed: the story is always the same.
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
"""How many attempts in a row the warehouse does not answer."""
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
    """What the trains of this company keep. It stands for the databases that a real one has."""

    guests: Random = field(default_factory=lambda: Random(7))  # noqa: S311 - the same story each time
    baristas: Random = field(default_factory=lambda: Random(7))  # noqa: S311
    cups: int = 0
    turnover: float = 0.0
    kilos: dict[str, int] = field(default_factory=lambda: {"beans": LOW + 4, "milk": 2 * LOW})

    def used_up(self) -> list[str]:
        """Use some of everything; what has run low is named."""
        for name in self.kilos:
            self.kilos[name] -= self.baristas.randint(5, 15)
        return [name for name, left in self.kilos.items() if left < LOW]


@dataclass(frozen=True, slots=True)
class Company:
    """The app, and what a person who watches it needs to know."""

    app: Trax
    closed_from: datetime
    closed_until: datetime
    """The hours without a back-up."""
    convert_prices: Train[Rates, int]
    rates: Path
    """The file whose absence ends in a dead letter."""

    async def ask_for_prices(self) -> None:
        """What somebody asks for by hand, before a file is there that it needs."""
        await self.app.queue(self.convert_prices, Rates(file=self.rates))


def company(url: str, folder: Path, *, at: datetime) -> Company:
    """Declare everything. Nothing touches the database yet."""
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
    """A flood under a limit, and a few urgent runs that need not stand in its line."""
    app.group(EMAILS, max_active_jobs=EMAILS_AT_ONCE)

    @app.train(group=EMAILS)
    async def send_email(email: Email) -> None:
        await asyncio.sleep(Random(email.number).uniform(0.08, 0.16))  # noqa: S311

    @app.train
    async def write_newsletter(issue: Issue) -> int:
        letters = [
            Email(number=one, to=f"guest{one}@example.com", subject=issue.title) for one in range(LETTERS)
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
    """Failing and trying again, dependents that sleep until they are needed, and a long run that says so."""

    @app.train(retry=Retry(max_retries=OUTAGE + 2, delay=SECOND, multiplier=1.0))
    async def sync_warehouse(_shop: Shop) -> str:
        run = current()
        if run is not None and run.attempt <= OUTAGE:
            raise ConnectionError("the warehouse does not answer")
        return "in sync"

    @app.train
    async def check_stock(_shop: Shop, books: Books) -> list[str]:
        low, run = books.used_up(), current()
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
    """A schedule with closed hours."""

    @app.train
    async def back_up(_shop: Shop) -> None:
        await asyncio.sleep(0.1)

    window = exclude.time_window(closed_from.time(), closed_until.time())
    app.schedule(back_up, "back-up", Shop(), every(seconds=2), exclude=window)


def _convert_prices(app: Trax) -> Train[Rates, int]:
    """A job that gives up."""

    @app.train(retry=Retry(max_retries=2, delay=SECOND))
    def convert_prices(rates: Rates) -> int:
        if not rates.file.exists():
            raise FileNotFoundError(f"{rates.file} is missing")
        return len(rates.file.read_text(encoding="utf-8").splitlines())

    return convert_prices
