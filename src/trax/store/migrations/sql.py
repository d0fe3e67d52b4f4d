"""Run the SQL file of a revision."""

from __future__ import annotations

from pathlib import Path

from alembic import op


def run_sql_file(revision_file: str) -> None:
    """Run `NNNN_name.<dialect>.sql` statement by statement, in the migration's transaction."""
    connection = op.get_bind()
    script = Path(revision_file).with_suffix(f".{connection.dialect.name}.sql")
    for statement in script.read_text(encoding="utf-8").split(";\n"):
        if statement.strip():
            connection.exec_driver_sql(statement)
