"""Alembic environment: use the caller's connection and transaction, and Trax's version table."""

from __future__ import annotations

from alembic import context

from trax.store.migrations import version_table

connection = context.config.attributes["connection"]
context.configure(connection=connection, **version_table(connection))
context.run_migrations()
