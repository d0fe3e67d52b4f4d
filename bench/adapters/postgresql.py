"""What the contenders on PostgreSQL share: a connection that checks whether all jobs are done."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar

import psycopg

from bench.adapters import Adapter


class PostgresqlAdapter(Adapter, ABC):
    """`LEFT` selects one row if a job is left, newest first, so that it reads one row while much is left."""

    LEFT: ClassVar[str]

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._observer: psycopg.AsyncConnection[Any] | None = None

    async def is_done(self) -> bool:
        if self._observer is None:
            self._observer = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        found = await self._observer.execute(self.LEFT.encode())
        return await found.fetchone() is None

    async def close(self) -> None:
        if self._observer is not None:
            await self._observer.close()
