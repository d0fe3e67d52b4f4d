"""The overhead of a train compared with awaiting its functions directly."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from bench.options import Options
from trax.train import Codec, Route, junction, train

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RUNS = 2_000
MICROSECONDS = 1e6


class Order(BaseModel):
    number: int
    customer: str
    note: str | None = None


async def step(order: Order) -> Order:
    return order


def main(options: Options) -> None:
    repeats = options.sized(25, 2)
    print(f"{'':<36}{'median':>10}{'best':>10}{'goal':>10}")
    for junctions, goal in ((1, None), (3, 25.0), (10, 60.0)):
        _report(
            f"a train of {junctions} over plain awaits", asyncio.run(_cost_of_train(junctions, repeats)), goal
        )
    _report("encode over model_dump_json", _cost_of_encoding(_dump, repeats), None)
    _report("  over the same with warnings=error", _cost_of_encoding(_dump_with_care, repeats), 0.5)


async def _cost_of_train(junctions: int, repeats: int) -> list[float]:
    order = Order(number=1, customer="Ada")
    one = junction(step)
    route: Route[Order, Order] = Route(one.stops * junctions)
    whole = train("bench", route)

    async def plain() -> Order:
        value = order
        for _ in range(junctions):
            value = await step(value)
        return value

    assert await whole.run(order) is await plain()
    return [
        await _microseconds(lambda: whole.run(order)) - await _microseconds(plain) for _ in range(repeats)
    ]


async def _microseconds(call: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    for _ in range(RUNS):
        await call()
    return (time.perf_counter() - started) / RUNS * MICROSECONDS


def _cost_of_encoding(plain: Callable[[Order], str], repeats: int) -> list[float]:
    encode, order = Codec(Order, owner="bench").encode, Order(number=1, customer="Ada")
    assert encode(order) == plain(order)
    return [_microseconds_for(encode, order) - _microseconds_for(plain, order) for _ in range(repeats)]


def _dump(order: Order) -> str:
    return order.model_dump_json()


def _dump_with_care(order: Order) -> str:
    return order.model_dump_json(round_trip=True, warnings="error")


def _microseconds_for(call: Callable[[Order], str], order: Order) -> float:
    started = time.perf_counter()
    for _ in range(RUNS):
        call(order)
    return (time.perf_counter() - started) / RUNS * MICROSECONDS


def _report(name: str, costs: list[float], goal: float | None) -> None:
    limit = "" if goal is None else f"{goal:.1f} µs"
    print(f"{name:<36}{statistics.median(costs):>7.1f} µs{min(costs):>7.1f} µs{limit:>10}")


if __name__ == "__main__":
    main(Options())
