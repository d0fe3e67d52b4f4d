from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self
from unittest.mock import Mock

import pytest

from trax.errors import DefinitionError, WiringError
from trax.train import Cancel, Cancelled, Done, Failed, Services, junction, train, wired

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator


@dataclass
class Order:
    number: int


class Client:
    def __init__(self, name: str = "client") -> None:
        self.name = name


class Session:
    def __init__(self, client: Client, timeout: float = 5.0) -> None:
        self.client = client
        self.timeout = timeout


@junction
async def use_client(order: Order, client: Client) -> str:
    return f"{client.name} {order.number}"


@junction
def use_client_again(text: str, client: Client) -> Client:
    assert text.startswith(client.name)
    return client


def provided(kind: Any, factory: Any, *, close: bool = True) -> Services:
    services = Services()
    services.provide(kind, factory, close=close)
    return services


def function() -> Client:
    return Client("function")


async def async_function() -> Client:
    return Client("async function")


def generator() -> Generator[Client]:
    yield Client("generator")


async def async_generator() -> AsyncGenerator[Client]:
    yield Client("async generator")


managed = contextmanager(generator)
async_managed = asynccontextmanager(async_generator)


@pytest.mark.parametrize(
    ("factory", "name"),
    [
        (function, "function"),
        (async_function, "async function"),
        (lambda: async_function(), "async function"),  # noqa: PLW0108 - a lambda is what is tested
        (generator, "generator"),
        (async_generator, "async generator"),
        (managed, "generator"),
        (async_managed, "async generator"),
        (Client, "client"),
        (Client("ready"), "ready"),
    ],
)
async def test_every_kind_of_factory_provides_its_service(factory: Any, name: str) -> None:
    whole = train("use", use_client, services=provided(Client, factory))

    assert await whole.run(Order(1)) == f"{name} 1"


async def test_a_service_is_created_once_per_run() -> None:
    made: list[Client] = []

    def make() -> Client:
        made.append(Client())
        return made[-1]

    whole = train("use", use_client >> use_client_again, services=provided(Client, make))

    assert await whole.run(Order(1)) is made[0]
    assert await whole.run(Order(2)) is made[1]
    assert len(made) == 2


async def test_an_unused_service_is_not_created() -> None:
    def never() -> Session:
        raise AssertionError

    services = provided(Client, Client)
    services.provide(Session, never)

    assert await train("use", use_client, services=services).run(Order(1)) == "client 1"


async def test_memory_comes_before_services() -> None:
    whole = train("use", use_client, services=provided(Client, Client("service")))

    assert await whole.run(Order(1), extra={Client: Client("memory")}) == "memory 1"


async def test_services_given_to_one_run_replace_those_of_the_train() -> None:
    whole = train("use", use_client, services=provided(Client, Client("real")))

    assert await whole.run(Order(1), services=provided(Client, Client("fake"))) == "fake 1"


async def test_a_factory_gets_its_parameters_from_memory_and_services() -> None:
    def make(client: Client, order: Order, *, tries: int = 3) -> Session:
        return Session(client, order.number + tries)

    services = provided(Client, Client)
    services.provide(Session, make)

    assert await train("session", use_session, services=services).run(Order(1)) == "client 4"


@junction
async def use_session(order: Order, session: Session) -> str:
    assert order.number
    return f"{session.client.name} {session.timeout}"


async def test_a_class_gets_only_what_it_cannot_do_without() -> None:
    services = provided(Client, Client)
    services.provide(Session, Session)

    whole = train("session", use_session, services=services, extra=(float,))

    assert await whole.run(Order(1), extra={float: 99.0}) == "client 5.0"


async def test_services_that_need_each_other_are_named() -> None:
    def client(session: Session) -> Client:
        return session.client

    def session(client: Client) -> Session:
        return Session(client)

    services = provided(Client, client)
    services.provide(Session, session)

    with pytest.raises(WiringError, match="services depend on each other: Client → Session → Client"):
        await train("circle", use_client, services=services).run(Order(1))


async def test_a_factory_with_a_missing_parameter_names_it() -> None:
    services = provided(Session, Session)

    with pytest.raises(WiringError, match="the factory of Session needs Client"):
        await train("session", use_session, services=services).run(Order(1))


def test_none_is_no_service() -> None:
    with pytest.raises(DefinitionError, match=r"provide\(Client, None\): a service cannot be None"):
        Services().provide(Client, None)  # pyright: ignore[reportArgumentType]


def test_a_ready_value_must_be_what_it_is_provided_for() -> None:
    with pytest.raises(DefinitionError, match="expected Client"):
        Services().provide(Client, 3)  # pyright: ignore[reportArgumentType]


async def test_a_factory_must_give_what_it_is_provided_for() -> None:
    whole = train("use", use_client, services=provided(Client, lambda: 3))

    with pytest.raises(WiringError, match="returned 3, expected Client"):
        await whole.run(Order(1))


async def test_a_test_double_stands_for_the_class_it_was_made_for() -> None:
    double = Mock(spec=Client)
    double.name = "double"

    assert await train("use", use_client, services=provided(Client, double)).run(Order(1)) == "double 1"


async def test_a_service_may_be_provided_for_a_protocol() -> None:
    @wired
    class Named(Protocol):
        name: str

    @junction
    async def use(order: Order, named: Named) -> str:
        return f"{named.name} {order.number}"

    class Fake:
        name: str = "fake"

    assert await train("use", use, services=provided(Named, Fake)).run(Order(1)) == "fake 1"


async def test_a_function_is_a_factory_even_where_a_function_is_needed() -> None:
    class Send(Protocol):
        def __call__(self, text: str) -> str: ...

    @junction
    async def use(order: Order, send: Send) -> str:
        return send(str(order.number))

    def make() -> Send:
        return lambda text: f"sent {text}"

    assert await train("use", use, services=provided(Send, make)).run(Order(1)) == "sent 1"


class Log:
    """Two services that tell when they open and close, and how the run had ended by then."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.services = Services()
        self.services.provide(Client, self.client)
        self.services.provide(Session, self.session)

    def client(self) -> Generator[Client]:
        yield from self._around("client", Client())

    async def session(self, client: Client) -> AsyncGenerator[Session]:
        for session in self._around("session", Session(client)):
            yield session

    def _around(self, name: str, value: Any) -> Generator[Any]:
        self.lines.append(f"open {name}")
        try:
            yield value
        except BaseException as error:
            self.lines.append(f"close {name} after {type(error).__name__}")
            raise
        else:
            self.lines.append(f"close {name}")


async def test_services_are_closed_in_reverse_when_the_run_is_done() -> None:
    log = Log()

    await train("use", use_session, services=log.services).run(Order(1))

    assert log.lines == ["open client", "open session", "close session", "close client"]


async def test_a_sync_service_is_closed_with_the_failure_of_the_run() -> None:
    log = Log()

    @junction
    async def fail(order: Order, client: Client) -> None:
        raise ValueError(order, client)

    with pytest.raises(ValueError, match="Order"):
        await train("fail", fail, services=log.services).run(Order(1))
    assert log.lines == ["open client", "close client after ValueError"]


async def test_services_are_closed_after_a_run_that_cancelled_itself() -> None:
    log = Log()

    @junction
    async def give_up(order: Order, client: Client) -> None:
        raise Cancel(f"{order.number} {client.name}")

    outcome = await train("give_up", give_up, services=log.services).attempt(Order(1))

    assert outcome == Cancelled("1 client")
    assert log.lines == ["open client", "close client after Cancel"]


async def test_services_are_closed_when_the_task_is_cancelled() -> None:
    log, reached = Log(), asyncio.Event()

    @junction
    async def wait(order: Order, client: Client) -> None:
        assert client.name
        assert order.number
        reached.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(train("wait", wait, services=log.services).run(Order(1)))
    await reached.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.lines == ["open client", "close client after CancelledError"]


def broken_on_closing() -> Generator[Client]:
    try:
        yield Client("broken")
    finally:
        raise RuntimeError("cannot close")


async def test_trouble_while_closing_fails_a_run_that_had_gone_well() -> None:
    whole = train("use", use_client, services=provided(Client, broken_on_closing))

    outcome = await whole.attempt(Order(1))

    assert isinstance(outcome, Failed)
    assert str(outcome.error) == "cannot close"
    assert outcome.failure.junction is None


async def test_trouble_while_closing_is_noted_on_a_run_that_had_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @junction
    async def fail(order: Order, client: Client) -> None:
        raise ValueError(order, client)

    whole = train("fail", fail, services=provided(Client, broken_on_closing))

    outcome = await whole.attempt(Order(1))

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ValueError)
    assert "then failed as well: RuntimeError('cannot close')" in outcome.error.__notes__[-1]
    assert "close failed after a failed run" in caplog.text


class Managed(Client):
    is_open = False

    def __enter__(self) -> Self:
        self.is_open = True
        return self

    def __exit__(self, *about: object) -> None:
        self.is_open = False


async def test_a_context_manager_is_entered_unless_close_is_false() -> None:
    @junction
    async def is_open(order: Order, client: Managed) -> bool:
        assert order
        return client.is_open

    assert await train("open", is_open, services=provided(Managed, Managed)).run(Order(1))
    assert not await train("open", is_open, services=provided(Managed, Managed, close=False)).run(Order(1))
    assert not await train("open", is_open, services=provided(Managed, Managed())).run(Order(1))


def test_a_generator_is_always_closed() -> None:
    with pytest.raises(DefinitionError, match="always closed"):
        Services().provide(Client, generator, close=False)


async def test_synchronous_factories_run_in_a_thread_and_classes_where_the_loop_is() -> None:
    here = threading.get_ident()
    places: dict[str, int] = {}

    def make() -> Client:
        places["function"] = threading.get_ident()
        return Client()

    class Made(Session):
        def __init__(self, client: Client) -> None:
            places["class"] = threading.get_ident()
            super().__init__(client)

    services = provided(Client, make)
    services.provide(Session, Made)

    await train("session", use_session, services=services).run(Order(1))
    assert places["function"] != here
    assert places["class"] == here


@junction
def use_blocking(order: Order, client: Client) -> str:
    return f"{client.name} {order.number}"


@pytest.mark.parametrize("factory", [async_function, async_generator, async_managed])
def test_an_async_service_cannot_be_had_in_a_blocking_run(factory: Any) -> None:
    whole = train("use", use_blocking, services=provided(Client, factory))

    with pytest.raises(WiringError, match="Client is an async service, and this run is blocking"):
        whole.run_blocking(Order(1))


async def test_a_synchronous_route_may_use_async_services() -> None:
    whole = train("use", use_blocking, services=provided(Client, async_generator))

    assert await whole.attempt(Order(1)) == Done("async generator 1")


def test_a_blocking_run_closes_its_services_too() -> None:
    log = Log()

    assert train("use", use_blocking, services=log.services).run_blocking(Order(1)) == "client 1"
    assert log.lines == ["open client", "close client"]
