"""Celery's workers execute. The broker is a folder here, so that no server has to be there."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from celery import Celery  # pyright: ignore[reportMissingTypeStubs]

from trax import Trax
from trax.remote.celery import CeleryWorkers, celery_task

HERE = Path(__file__)
FOLDERS = {
    "data_folder_in": "broker/messages",
    "data_folder_out": "broker/messages",
    "control_folder": "broker/control",
}

tasks = Celery(HERE.stem, broker="filesystem://", broker_transport_options=FOLDERS)
app = Trax("sqlite:///trax.db")


@app.train
def shout(words: str) -> str:
    return words.upper() + "!"


app.route(shout, to=CeleryWorkers(tasks))
celery_task(app, tasks)


async def main() -> None:
    worker = celery_worker()
    try:
        async with app:
            entry = await app.queue(shout, "hello from Celery")
            run = await entry.wait(timeout=60)
            print(f"run {run.id}, executed by {run.submitter}: {run.state}, {run.output}")
    finally:
        worker.terminate()
        worker.wait()


def celery_worker() -> subprocess.Popen[bytes]:
    """What you would start on other machines: `celery -A celery_workers:tasks worker`."""
    for folder in FOLDERS.values():
        Path(folder).mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "celery", "-q", "-A", f"{HERE.stem}:tasks", "worker", "--pool", "solo"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    with Path("celery.log").open("wb") as log:
        return subprocess.Popen(words, env=environment, stderr=log)  # noqa: S603


if __name__ == "__main__":
    asyncio.run(main())
