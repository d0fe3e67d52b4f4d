"""A far side that has only code and a secret: it answers HTTP, and the near side keeps the records."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn

from trax import Trax, current
from trax.remote.http.workers import HttpWorkers

SECRET = "change me: secrets.token_urlsafe() makes one"  # noqa: S105


def declared(app: Trax) -> Trax:
    """The trains, which both sides load."""

    @app.train
    async def shout(words: str) -> str:
        run = current()
        if run:
            await run.progress(0.5, "taking a deep breath")
        return words.upper() + "!"

    return app


@asynccontextmanager
async def far_side() -> AsyncGenerator[str]:
    """A web server anywhere. It has no database: `memory://` is never opened."""
    endpoint = declared(Trax("memory://")).http_endpoint(SECRET)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(endpoint, log_level="warning"))
    serving = asyncio.create_task(server.serve([listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/jobs"
    finally:
        server.should_exit = True
        await serving


async def main() -> None:
    async with far_side() as url:
        app = declared(Trax("sqlite:///trax.db"))
        shout = app.trains.get("shout")
        remote = HttpWorkers(url, SECRET, mode="response")
        app.route(shout, to=remote)
        async with app:
            entry = await app.queue(shout, "hello from the queue")
            run = await entry.wait(timeout=30)
            print(f"run {run.id}, executed by {run.submitter}: {run.state}, {run.output}")
            print(await app.run(shout, "and while you wait", on=remote))


if __name__ == "__main__":
    asyncio.run(main())
