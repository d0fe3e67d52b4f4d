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

    def book(self, amount: float) -> None:
        print(f"  the till books {amount:.2f}")


@junction
def on_account(order: Order) -> Receipt | None:
    """A short circuit: what it returns is the result, and the rest of the route still runs."""
    return Receipt(f"{order.customer} pays at the end of the month") if order.customer == "Grace" else None


@junction
async def price(order: Order) -> Invoice:
    return Invoice(total=order.cups * 3.5)


@junction
def charge(invoice: Invoice, order: Order, till: Till) -> Receipt:
    if order.customer == "Mallory":
        raise PermissionError(f"{order.customer} has no credit")
    till.book(invoice.total)
    return Receipt(f"{order.customer} paid {invoice.total:.2f}")


async def tell(record: Metadata, error: Exception) -> None:
    print(f"  execution {record.id} failed in {record.failure_junction}: {error}")


app = Trax("memory://")
app.provide(Till, Till)
serve = app.train("serve", short_circuit(on_account) >> price >> charge, on_failed=tell)


async def main() -> None:
    async with app:
        for customer in ("Ada", "Grace", "Mallory"):
            print(customer)
            try:
                receipt = await app.run(serve, Order(customer, cups=2))
            except PermissionError:
                continue
            print(f"  {receipt.text}")


if __name__ == "__main__":
    asyncio.run(main())
