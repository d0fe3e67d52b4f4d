"""A train of several junctions with a service, a short circuit and a failure that tells where it happened."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Self

from trax import Metadata, Trax, junction, short_circuit


@dataclass
class Order:
    customer: str
    cups: int


@dataclass
class Invoice:
    total: float


@dataclass
class Receipt:
    text: str


class Till:
    """A service: made once for each run that asks for it, closed when the run ends."""

    def __enter__(self) -> Self:
        print("  the till opens")
        return self

    def __exit__(self, *_: object) -> None:
        print("  the till closes")

    def take(self, amount: float) -> None:
        print(f"  the till takes {amount:.2f}")


@junction
def on_the_house(order: Order) -> Receipt | None:
    return Receipt(f"{order.customer} drinks for free") if order.customer == "Grace" else None


@junction
async def price(order: Order) -> Invoice:
    return Invoice(total=order.cups * 3.5)


@junction
def charge(invoice: Invoice, order: Order, till: Till) -> Receipt:
    if order.customer == "Mallory":
        raise PermissionError(f"{order.customer} has no credit")
    till.take(invoice.total)
    return Receipt(f"{order.customer} paid {invoice.total:.2f}")


async def tell(record: Metadata, error: Exception) -> None:
    print(f"  execution {record.id} failed in {record.failure_junction}: {error}")


app = Trax("memory://")
app.provide(Till, Till)
serve = app.train("serve", short_circuit(on_the_house) >> price >> charge, on_failed=tell)


async def main() -> None:
    async with app:
        for customer in ("Ada", "Grace", "Mallory"):
            print(customer)
            try:
                receipt = await app.run(serve, Order(customer, cups=2))
            except PermissionError:
                continue
            print(f"  {receipt.text}")


asyncio.run(main())
