"""What a database does to answer a question: rows that PostgreSQL reads, steps that SQLite takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import event

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sqlalchemy import Connection

    from trax.store import Store

GREAT = frozenset({"metadata", "work_queue"})


def rows_read(store: Store, question: Callable[[Connection], Any], *, of: Collection[str] = GREAT) -> int:
    """How many rows of the great tables it looks at, over all statements that are asked."""
    asked: list[tuple[str, Any]] = []

    def explained(connection: Connection) -> int:
        def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            if not statement.startswith("SET"):
                asked.append((statement, parameters))

        event.listen(connection, "before_cursor_execute", note)
        question(connection)
        event.remove(connection, "before_cursor_execute", note)
        return sum(_read(_plan(connection, *one), of) for one in asked)

    return store.run(explained)


def _plan(connection: Connection, statement: str, parameters: Any) -> dict[str, Any]:
    plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
    return plan.scalar_one()[0]["Plan"]


def _read(node: dict[str, Any], of: Collection[str]) -> int:
    own = 0
    if node.get("Relation Name") in of:
        own = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return int(own) + sum(_read(child, of) for child in node.get("Plans", ()))


STEPS_AT_ONCE = 50
"""SQLite tells after so many of its instructions that it is still at it."""


def steps_taken(store: Store, question: Callable[[Connection], Any]) -> int:
    """About how many instructions SQLite executes; the second time, when all is compiled and read once."""

    def counted(connection: Connection) -> int:
        steps = 0

        def note() -> int:
            nonlocal steps
            steps += STEPS_AT_ONCE
            return 0

        driver: Any = connection.connection.driver_connection
        question(connection)
        driver.set_progress_handler(note, STEPS_AT_ONCE)
        try:
            question(connection)
        finally:
            driver.set_progress_handler(None, 0)
        return steps

    return store.read(counted)
