"""A FastAPI shop that queues inside its own transaction: the job exists exactly if the order does.

It needs `pip install 'trax-scheduler[web]'`. Serve it with `uvicorn fastapi_orders:api`. The web process runs
the jobs too; to run them elsewhere leave out `async with jobs` and type `trax run fastapi_orders.py:jobs`.
Executed as a script it tries itself out.
"""

from __future__ import annotations

import json
import socket
from contextlib import asynccontextmanager, closing, contextmanager
from http.client import HTTPConnection
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from trax import Trax

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

DATABASE: Final = "sqlite:///shop.db"
IN_STOCK: Final = 100

engine = create_engine(DATABASE)
jobs = Trax(DATABASE)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    cups: Mapped[int]


class Wanted(BaseModel):
    customer: str
    cups: int


class Placed(BaseModel):
    order: int
    entry: int


@jobs.train
def confirm(order_id: int) -> str:
    with Session(engine) as session:
        order = session.get_one(Order, order_id)
        return f"{order.customer}, your {order.cups} cups are on their way"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    Base.metadata.create_all(engine)
    async with jobs:
        yield
    engine.dispose()


api = FastAPI(lifespan=lifespan)


@api.post("/orders")
def place(wanted: Wanted) -> Placed:
    with Session(engine) as session, session.begin():
        order = Order(customer=wanted.customer, cups=wanted.cups)
        session.add(order)
        session.flush()
        entry = jobs.sync.queue(confirm, order.id, connection=session)
        if wanted.cups > IN_STOCK:  # found out late: the order is rolled back, and its job with it
            raise HTTPException(409, f"there are only {IN_STOCK} cups")
        return Placed(order=order.id, entry=entry.id)


@api.get("/confirmations/{entry}")
async def confirmation(entry: int) -> str:
    queued = await jobs.work_queue.get(entry)
    run = await queued.wait(timeout=30)
    return str(run.output)


@api.get("/jobs")
async def list_jobs() -> list[str]:
    return [f"{entry.train} {entry.input}: {entry.status}" for entry in await jobs.work_queue.list()]


@contextmanager
def served() -> Generator[int]:
    """Serve the shop on a free port during the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(api, log_level="warning"))
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def call(port: int, path: str, order: dict[str, Any] | None = None) -> Any:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(connection):
        body = None if order is None else json.dumps(order)
        connection.request(
            "GET" if order is None else "POST", path, body, {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        return response.status, json.load(response)


def try_out() -> None:
    with served() as port:
        status, refused = call(port, "/orders", {"customer": "Mallory", "cups": 1000})
        print(f"Mallory: {status}, {refused['detail']}")

        _, placed = call(port, "/orders", {"customer": "Ada", "cups": 2})
        _, confirmed = call(port, f"/confirmations/{placed['entry']}")
        print(f"Ada: {confirmed}")
        _, listed = call(port, "/jobs")
        print(f"jobs: {listed}")


if __name__ == "__main__":
    try_out()
