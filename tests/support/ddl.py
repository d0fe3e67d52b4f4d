"""The statements that make today's schema, per dialect.

`python -m tests.support.ddl 0001_initial` writes them beside a revision that has not been released yet.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from trax.store import migrations
from trax.store.schema import tables_for
from trax.store.schema.define import STATEMENTS

DIALECTS = {"postgresql": postgresql.dialect(), "sqlite": sqlite.dialect()}


def statements(dialect: str) -> list[str]:
    wanted = tables_for(dialect).all.sorted_tables
    made = [(table.name, CreateTable(table)) for table in wanted]
    indexed = [
        (index.name, CreateIndex(index))
        for table in wanted
        for index in sorted(table.indexes, key=lambda index: str(index.name))
    ]
    compiled = [_plain(str(step.compile(dialect=DIALECTS[dialect]))) for _, step in [*made, *indexed]]
    return [*compiled, *(statement for table in wanted for statement in table.info.get(STATEMENTS, ()))]


def _plain(statement: str) -> str:
    lines = [line.rstrip() for line in statement.strip().expandtabs(4).splitlines()]
    return "\n".join(line for line in lines if line)


if __name__ == "__main__":
    for name in DIALECTS:
        target = Path(migrations.__file__).parent / "versions" / f"{sys.argv[1]}.{name}.sql"
        target.write_text("".join(f"{statement};\n\n" for statement in statements(name)), encoding="utf-8")
