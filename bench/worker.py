"""A process that runs the app as `trax run` does: it works, or queues a job, when it is told to."""

from __future__ import annotations

import asyncio
import time

from bench.children import say, words
from bench.railway import Job, railway
from trax.worker.loop import freeze_loaded_objects


async def main() -> None:
    app, _, tell = railway()
    await app.parts.store.open()
    freeze_loaded_objects()
    say(ready=True)
    cpu = time.process_time()
    async for word in words():
        match word:
            case "work":
                cpu = time.process_time()
                await app.start()
                say(works=True)
            case "queue":
                asked = time.monotonic()
                await app.queue(tell, Job(number=1))
                say(asked=asked)
            case _:
                break
    say(cpu=time.process_time() - cpu)
    await app.stop()


if __name__ == "__main__":
    asyncio.run(main())
