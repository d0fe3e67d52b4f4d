"""The worker side of the reference engine, as a process: claims the runs whose ids are in its folder."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from trax.testing.submitter_contract import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from trax.remote.receiver import Receiver


async def main() -> None:
    site, stopped = Workspace.from_environment(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with site.app().receiver(concurrency=20) as receiver:
        print("ready", flush=True)  # noqa: T201
        while not stopped.is_set():
            await take_up_all(receiver, site.folder / "mail")
            await asyncio.sleep(0.01)


async def take_up_all(receiver: Receiver, mail: Path) -> None:
    """A letter is thrown away once its run is taken up, or was by somebody else."""
    for letter in sorted(mail.iterdir()):  # noqa: ASYNC240 - a folder with a handful of files
        await receiver.claim_by_id(int(letter.name))
        letter.unlink()


if __name__ == "__main__":
    asyncio.run(main())
