"""A proxy between our code and PostgreSQL that understands the protocol, and makes faults on command.

What a client sends up to a synchronisation is one *unit*: a statement, a pipeline of statements, or COMMIT.
For each unit the plan of the proxy says which fault it has, if any. So a fault hits exactly one transaction,
on whichever connection: of a pool, the direct connection of an event loop, or a listener.
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from collections import Counter, deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import make_url

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from random import Random

T = TypeVar("T")

SSL_REQUEST: Final = 80877103
GSS_REQUEST: Final = 80877104
WRITES: Final = re.compile(r"\b(insert|update|delete|copy|notify|nextval|pg_notify)\b", re.IGNORECASE)
REFUSALS: Final = {
    "40001": "could not serialize access",
    "53100": "could not extend file: No space left on device",
    "54000": "too many notifications in the NOTIFY queue",
}
"""What a server says that cannot commit."""
FAILING: Final = b"\0SELECT trax_commit_is_refused()\0\0\0"
"""A statement that does not parse: at the end of an implicit transaction it is like a refused commit."""


class Fault(Enum):
    """What happens to one unit."""

    REFUSED = "the server rolls back, and says so where it would have committed"
    LOST_BEFORE = "the connection is cut, and the server never gets it"
    LOST_AFTER = "the server executes it, and the connection is cut before the answer arrives"
    CUT = "the server executes it, and the connection is cut in the middle of the answer"
    SLOW = "the answer is late"
    DOUBLED = "the server gets it twice; the answer is that to the second one"


ENQUEUES: Final = "INTO trax.work_queue"
"""What no network sends twice, and no server could tell from two calls."""
COMMIT_FAULTS: Final = (Fault.REFUSED, Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.CUT, Fault.SLOW)


@dataclass(slots=True)
class Unit:
    """What a client sent up to a synchronisation: its statements, and what they do."""

    statements: list[str]
    is_implicit: bool
    """Whether it is a transaction of its own, without BEGIN and COMMIT."""
    commits: bool
    """Whether a transaction that wrote something ends here."""
    fault: Fault | None = None
    is_dropped: bool = False
    """Whether its answer is not passed on."""

    def has(self, text: str) -> bool:
        return any(text in statement for statement in self.statements)


def no_faults(unit: Unit) -> Fault | None:  # noqa: ARG001
    return None


class DrawnFaults:
    """A plan from a seed: some of the commits have a fault, and each fault is as frequent."""

    def __init__(self, random: Random, chance: float, faults: tuple[Fault, ...] = COMMIT_FAULTS) -> None:
        self._random, self._chance, self._faults = random, chance, faults
        self._next: list[Fault] = []

    def __call__(self, unit: Unit) -> Fault | None:
        if not unit.commits or self._random.random() >= self._chance:
            return None
        if not self._next:
            self._next = self._random.sample(self._faults, len(self._faults))
        fault = next(
            (each for each in self._next if each is not Fault.DOUBLED or not unit.has(ENQUEUES)), None
        )
        if fault is not None:
            self._next.remove(fault)
        return fault


class FaultProxy:
    """Forwards connections to PostgreSQL. Use `url` instead of that of the server."""

    def __init__(self, url: str) -> None:
        self._server = make_url(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="fault proxy")
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lock = threading.Lock()
        self._plan: Callable[[Unit], Fault | None] = no_faults
        self.counts: Counter[Fault] = Counter()
        self.slow_seconds = 0.02
        self.refusal = "54000"
        """The code of the error of a refused commit."""
        self.is_down = False
        """Whether new connections are refused."""
        self._thread.start()
        self._listener = self._run(asyncio.start_server(self._accept, "127.0.0.1", 0))
        port = self._listener.sockets[0].getsockname()[1]
        address = self._server.set(host="127.0.0.1", port=port)
        self.url = address.render_as_string(hide_password=False)

    def follow(self, plan: Callable[[Unit], Fault | None]) -> None:
        """From now on, let this plan say which unit has a fault."""
        with self._lock:
            self._plan = plan

    def inject(self, fault: Fault, when: Callable[[Unit], bool] = lambda unit: unit.commits) -> None:
        """Let the next unit of which this is true have a fault, and no other one."""
        left = [fault]
        self.follow(lambda unit: left.pop() if left and when(unit) else None)

    def clear(self) -> None:
        """Make no more faults."""
        self.follow(no_faults)

    def cut(self) -> None:
        """Cut all connections, also idle ones."""
        self._run(self._cut())

    def close(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def fault_of(self, unit: Unit) -> Fault | None:
        """The fault of this unit, which is counted."""
        with self._lock:
            fault = self._plan(unit)
            if fault is not None:
                self.counts[fault] += 1
            return fault

    async def _end(self) -> None:
        self._listener.close()
        await self._cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _cut(self) -> None:
        for connection in list(self._connections):
            connection.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._server.host or "127.0.0.1", self._server.port or 5432
        if self.is_down:
            writer.close()
            return
        try:
            ours = await asyncio.open_connection(host, port)
        except OSError:  # there is no server now
            writer.close()
            return
        connection, task = _Connection(self, reader, writer, *ours), asyncio.current_task()
        assert task
        self._connections.add(connection)
        self._tasks.add(task)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            self._tasks.discard(task)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


@contextmanager
def fault_proxy(url: str) -> Generator[FaultProxy]:
    proxy = FaultProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


@dataclass(eq=False)
class _Connection:
    """One connection of a client, and ours to the server."""

    proxy: FaultProxy
    client_reader: asyncio.StreamReader
    client_writer: asyncio.StreamWriter
    server_reader: asyncio.StreamReader
    server_writer: asyncio.StreamWriter
    units: deque[Unit] = field(default_factory=deque[Unit])
    """The units that the server has not answered yet."""
    prepared: dict[bytes, str] = field(default_factory=dict[bytes, str])
    is_idle: bool = True
    """Whether the server is outside a transaction, as of its last answer."""
    has_written: bool = False
    """Whether the explicit transaction that is open has written something."""

    async def run(self) -> None:
        pumps = [asyncio.create_task(self._pass_on()), asyncio.create_task(self._pass_back())]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self.cut()
        await asyncio.gather(*pumps, return_exceptions=True)

    def cut(self) -> None:
        for writer in (self.client_writer, self.server_writer):
            if not writer.transport.is_closing():
                writer.transport.abort()

    # from the client

    async def _pass_on(self) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._start()
            messages, is_copying = list[tuple[bytes, bytes]](), False
            while True:
                kind, body = await _read_message(self.client_reader)
                messages.append((kind, body))
                is_copying = is_copying or kind in (b"d", b"c", b"f")
                if kind == b"Q" or (kind == b"S" and not is_copying):
                    if not await self._send_unit(messages):
                        return
                    messages = []
                elif kind in (b"H", b"X", b"p", b"d", b"c", b"f", b"S"):
                    await self._send(messages)
                    messages, is_copying = [], is_copying and kind != b"S"

    async def _start(self) -> None:
        """The first message has no type. Encryption is refused, else there would be nothing to read."""
        while True:
            header = await self.client_reader.readexactly(8)
            length, code = struct.unpack("!II", header)
            body = await self.client_reader.readexactly(length - 8)
            if code not in (SSL_REQUEST, GSS_REQUEST):
                break
            self.client_writer.write(b"N")
        self.units.append(Unit([], is_implicit=False, commits=False))
        self.server_writer.write(header + body)

    async def _send_unit(self, messages: list[tuple[bytes, bytes]]) -> bool:
        """Send a unit, with its fault; false if the connection was cut instead."""
        unit = self._unit_of(messages)
        unit.fault = self.proxy.fault_of(unit)
        if unit.fault is Fault.LOST_BEFORE:
            return False
        if unit.fault is Fault.REFUSED:
            messages = _refused(messages, unit)
        self.units.append(unit)
        await self._send(messages)
        if unit.fault is Fault.DOUBLED:
            unit.is_dropped = True
            self.units.append(Unit(unit.statements, unit.is_implicit, unit.commits))
            await self._send([message for message in messages if not _is_named_parse(message)])
        return True

    def _unit_of(self, messages: list[tuple[bytes, bytes]]) -> Unit:
        statements: list[str] = []
        for kind, body in messages:
            if kind == b"Q":
                statements.append(_text(body))
            elif kind == b"P":
                name, _, rest = body.partition(b"\0")
                self.prepared[name] = _text(rest)
            elif kind == b"B":
                name = body.partition(b"\0")[2].partition(b"\0")[0]
                statements.append(self.prepared.get(name, ""))
        verbs = [statement.lstrip()[:6].upper() for statement in statements]
        begins, ends = any(verb.startswith(("BEGIN", "START")) for verb in verbs), "COMMIT" in verbs
        writes = any(WRITES.search(statement) for statement in statements)
        is_implicit = self.is_idle and not begins
        self.has_written = writes or (self.has_written and not self.is_idle)
        return Unit(statements, is_implicit, (is_implicit and writes) or (ends and self.has_written))

    async def _send(self, messages: list[tuple[bytes, bytes]]) -> None:
        self.server_writer.write(b"".join(_frame(*message) for message in messages))
        await self.server_writer.drain()

    # from the server

    async def _pass_back(self) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            answer = bytearray()
            while True:
                kind, body = await _read_message(self.server_reader)
                unit = self.units[0] if self.units else None
                if unit is None or unit.fault in (None, Fault.SLOW):
                    if unit is None or not unit.is_dropped:
                        answer += _frame(kind, body)
                else:
                    answer += _refused_answer(kind, body, unit, self.proxy.refusal)
                if kind == b"Z":
                    self.is_idle = body == b"I"
                    if unit is not None:
                        self.units.popleft()
                        if not await self._answer(answer, unit):
                            return
                    answer.clear()
                elif unit is None or unit.fault is None or kind == b"G":
                    self.client_writer.write(bytes(answer))
                    answer.clear()

    async def _answer(self, answer: bytearray, unit: Unit) -> bool:
        """Pass the answer to a unit on, as its fault wants; false if the connection was cut instead."""
        if unit.fault is Fault.LOST_AFTER:
            return False
        if unit.fault is Fault.CUT:
            await self._write(answer[: len(answer) // 2])
            return False
        if unit.fault is Fault.SLOW:
            await asyncio.sleep(self.proxy.slow_seconds)
        if not unit.is_dropped:
            await self._write(answer)
        return True

    async def _write(self, data: bytes | bytearray) -> None:
        if data:
            self.client_writer.write(bytes(data))
            await self.client_writer.drain()


async def _read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    header = await reader.readexactly(5)
    (length,) = struct.unpack("!I", header[1:])
    return header[:1], await reader.readexactly(length - 4)


def _frame(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _text(body: bytes) -> str:
    return body.partition(b"\0")[0].decode(errors="replace")


def _is_named_parse(message: tuple[bytes, bytes]) -> bool:
    kind, body = message
    return kind == b"P" and not body.startswith(b"\0")


def _refused(messages: list[tuple[bytes, bytes]], unit: Unit) -> list[tuple[bytes, bytes]]:
    """Let the server roll back instead: its answer becomes that of a commit that failed."""
    if unit.is_implicit:
        return [*messages[:-1], (b"P", FAILING), messages[-1]]
    return [(kind, body.replace(b"COMMIT", b"ROLLBACK")) for kind, body in messages]


def _refused_answer(kind: bytes, body: bytes, unit: Unit, code: str) -> bytes:
    if unit.fault is Fault.REFUSED and (kind == b"E" or (kind == b"C" and body == b"ROLLBACK\0")):
        return _frame(b"E", f"SERROR\0VERROR\0C{code}\0M{REFUSALS[code]}\0\0".encode())
    return _frame(kind, body)
