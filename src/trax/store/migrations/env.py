"""What Alembic runs for each command: our connection, our transaction, our version table."""

from __future__ import annotations

from alembic import context

from trax.store.migrations import version_table

connection = context.config.attributes["connection"]
context.configure(connection=connection, **version_table(connection))
context.run_migrations()
