"""The worker side of Celery: a worker with Trax's task, and a plain task that does nothing."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

import os
import signal
from threading import Thread
from typing import Any, Final

from celery import Celery, signals

from bench.app import build_app
from bench.children import say
from trax.remote.celery import celery_task

PROCESSES: Final = 4


def celery_app(broker: str) -> tuple[Any, Any]:
    """The Celery app of both sides, and the plain task, whose result also goes through the broker."""
    app: Any = Celery("bench", broker=broker, backend=broker if broker.startswith("redis") else "rpc://")
    app.conf.update(broker_connection_retry_on_startup=True, worker_redirect_stdouts=False)

    def noop(number: int) -> None:
        """Do nothing."""

    return app, app.task(noop, name="bench.noop")


def main() -> None:
    app, _ = celery_app(os.environ["BROKER"])
    celery_task(build_app().app, app)
    signals.worker_ready.connect(_ready)
    Thread(target=_end_with_input, daemon=True).start()
    app.worker_main(["-q", "worker", "-c", str(PROCESSES), "-l", "error"])


def _ready(**_: Any) -> None:
    say(ready=True)


def _end_with_input() -> None:
    """Without `sys.stdin`: a forked process would wait for its lock."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
