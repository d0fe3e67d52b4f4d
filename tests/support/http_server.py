"""The endpoint of HTTP workers, as a process: a real server on the loopback, at a given port."""

from __future__ import annotations

import os
from typing import Any

import uvicorn

from trax.testing.submitter_contract import Workspace

SECRET = "a secret of the contract"
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


class Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print("ready", flush=True)  # noqa: T201


def main() -> None:
    endpoint = Workspace.from_environment().app().http_endpoint(SECRET, concurrency=20)
    config = uvicorn.Config(endpoint, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
    Server(config).run()


if __name__ == "__main__":
    main()
