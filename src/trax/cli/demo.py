"""`trax demo`: a small train on the embedded default, and the record it leaves."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from trax import InvalidInput, Trax, junction

if TYPE_CHECKING:
    from trax import Metadata


class Order(BaseModel):
    """What goes in."""

    customer: str
    cups: int


class Invoice(BaseModel):
    """What one junction makes for the next."""

    total: float


class Receipt(BaseModel):
    """What comes out."""

    text: str


@junction
async def price(order: Order) -> Invoice:
    return Invoice(total=order.cups * 3.5)


@junction
def charge(invoice: Invoice, order: Order) -> Receipt:
    if order.customer == "Mallory":
        raise PermissionError(f"{order.customer} has no credit")
    return Receipt(text=f"{order.customer} paid {invoice.total:.2f}")


Folder = Annotated[Path, Parameter(help="Where the demo keeps its database.")]
PIPE_WIDTH = 100
SHOWN = ("train", "state", "input", "output", "failure_junction", "failure_exception", "failure_reason")


def demo(*, folder: Folder = Path("trax-demo")) -> None:
    """Run a small train on the embedded default and show its records."""
    folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    asyncio.run(_serve_coffee(folder / "trax.db", console))


async def _serve_coffee(file: Path, console: Console) -> None:
    app = Trax(f"sqlite:///{file}")
    serve = app.train("serve_coffee", price >> charge)
    console.print(f"The train is [bold]{serve.route!r}[/]: an Order goes in, a Receipt comes out.\n")

    async with app:
        for customer, cups in (("Ada", 2), ("Mallory", 1)):
            console.print(f"  {customer} orders {cups}: ", end="")
            try:
                receipt = await app.run(serve, Order(customer=customer, cups=cups))
            except PermissionError as error:
                console.print(f"it failed, {error}", style="red")
            else:
                console.print(receipt.text, style="green")
        console.print("  Bob orders 'many': ", end="")
        try:
            await app.run(serve, {"customer": "Bob", "cups": "many"})  # pyright: ignore[reportArgumentType]
        except InvalidInput as refused:
            console.print(str(refused), style="yellow")

        failed, done = await app.executions.list(limit=2)
        console.print()
        console.print(_side_by_side(done, failed))
    console.print(f"\nThese records are in {file}, in the table trax_metadata. Run it again: they only grow.")


def _side_by_side(*records: Metadata) -> Table:
    table = Table("what was recorded", *(f"execution {record.id}" for record in records))
    for name in (
        "train",
        "state",
        "input",
        "output",
        "failure_junction",
        "failure_exception",
        "failure_reason",
    ):
        table.add_row(name, *(_cell(getattr(record, name)) for record in records))
    table.add_row("took", *(f"{_milliseconds(record):.1f} ms" for record in records))
    return table


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _milliseconds(record: Metadata) -> float:
    return ((record.ended_at or record.created_at) - record.created_at) / timedelta(milliseconds=1)
