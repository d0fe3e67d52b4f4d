"""The plans of every statement that a block of code sends to PostgreSQL, as the server executed them.

They come from `auto_explain`, so that nothing is run twice: neither the text of a statement nor
the way in which it is sent (prepared, in a pipeline, from a thread) matters.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Pool, event

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

Node = dict[str, Any]
MARK: Final = "plan:\n"
SWITCHES: Final = (
    "LOAD 'auto_explain'",
    "SET auto_explain.log_min_duration = 0",
    "SET auto_explain.log_analyze = on",
    "SET auto_explain.log_buffers = on",
    "SET auto_explain.log_timing = off",
    "SET auto_explain.log_format = 'json'",
    "SET client_min_messages = log",
)


@dataclass(frozen=True)
class Explained:
    """A statement with its plan, and what it took to execute it."""

    statement: str
    plan: Node

    def nodes(self) -> Iterator[Node]:
        return _nodes(self.plan)

    @property
    def buffers(self) -> int:
        """The number of page reads, from memory or not; a page counts each time it is read."""
        return sum(_own_buffers(node) for node in self.nodes() if "Relation Name" in node)

    @property
    def changed_rows(self) -> int:
        """How many rows it has inserted, updated, deleted, or locked to be updated next."""
        changes = ("ModifyTable", "LockRows")
        sources = (each for node in self.nodes() if node["Node Type"] in changes for each in node["Plans"])
        return sum(each["Actual Rows"] * each["Actual Loops"] for each in sources)

    def ways_into(self, table: str) -> set[str]:
        """The indexes used to find rows of this table, or the kind of scan that uses none."""
        return {
            way
            for node in self.nodes()
            if node.get("Relation Name") == table and node["Actual Loops"]
            for way in _ways(node)
        }


def _ways(node: Node) -> set[str]:
    kind = node["Node Type"]
    if kind == "Bitmap Heap Scan":
        return {each["Index Name"] for each in _nodes(node) if "Index Name" in each}
    return {node.get("Index Name", kind)} if "Scan" in kind else set()


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _own_buffers(node: Node) -> int:
    """Without the pages of the nodes below it, which are counted separately.

    What a data-modifying part of a statement takes is in no node above it, hence the maximum.
    """
    return max(0, _buffers(node) - sum(map(_buffers, node.get("Plans", ()))))


def _buffers(node: Node) -> int:
    return node["Shared Hit Blocks"] + node["Shared Read Blocks"]


@dataclass
class PlanLog:
    """The executed statements, in order."""

    _explained: list[Explained] = field(default_factory=list[Explained])

    def take(self) -> list[Explained]:
        """The statements since the last call."""
        found, self._explained = self._explained, []
        return found

    def add(self, message: str) -> None:
        _, mark, told = message.partition(MARK)
        if mark:
            found = json.loads(told)
            self._explained.append(Explained(found["Query Text"], found["Plan"]))


@contextmanager
def explained_statements() -> Generator[PlanLog]:
    """Collect the plans of all connections that this process opens during the block."""
    log = PlanLog()

    def note(diagnostic: Any) -> None:
        log.add(diagnostic.message_primary or "")

    def switch_on(connection: Any, _record: object) -> None:
        if hasattr(connection, "add_notice_handler"):
            connection.add_notice_handler(note)
            connection.execute(";".join(SWITCHES))
            connection.commit()

    event.listen(Pool, "connect", switch_on)
    try:
        yield log
    finally:
        event.remove(Pool, "connect", switch_on)
