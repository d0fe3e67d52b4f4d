"""The worker side of HTTP, and a second URL that responds without Trax."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

import uvicorn

from bench.app import build_app
from bench.children import say, words

SECRET: Final = "a secret for the benchmark"  # noqa: S105 - nobody else can reach it


async def main() -> None:
    endpoint = build_app().app.http_endpoint(SECRET, concurrency=20)

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/bare":
            while (await receive()).get("more_body"):
                pass
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await endpoint(scope, receive, send)

    config = uvicorn.Config(serve, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
    server = Server(config)
    serving = asyncio.create_task(server.serve())
    async for _ in words():
        pass
    server.should_exit = True
    await serving


class Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        say(ready=True)


if __name__ == "__main__":
    asyncio.run(main())
