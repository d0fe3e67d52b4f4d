"""A Celery worker whose task claims the runs of the site's app."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
from __future__ import annotations

import os
import sys
import time
from typing import Any

import billiard.pool
from celery import Celery, signals
from celery.utils import timer2
from kombu.transport import virtual

from trax.remote.celery import BROKER_PRIORITY_MAX, celery_task
from trax.testing.submitter_contract import Workspace

BROKER = "TRAX_TEST_BROKER"
QUEUE = "TRAX_TEST_QUEUE"


def celery_app(broker: str, queue: str) -> Any:
    """As both sides have it: a broker by its address, or a folder of messages."""
    app: Any = Celery("site", broker="filesystem://" if broker.startswith("/") else broker)
    app.conf.update(
        broker_connection_retry_on_startup=True,
        broker_transport_options=_folders(broker) if broker.startswith("/") else {},
        task_default_queue=queue,
        task_queue_max_priority=BROKER_PRIORITY_MAX,  # RabbitMQ wants to know
        worker_prefetch_multiplier=1,
        worker_redirect_stdouts=False,
    )
    return app


def _folders(broker: str) -> dict[str, Any]:
    return {
        "polling_interval": 0.02,
        "data_folder_in": f"{broker}/messages",
        "data_folder_out": f"{broker}/messages",
        "control_folder": f"{broker}/control",
    }


def main(*options: str) -> None:
    os.setsid()  # so that the worker and all that it forks can be killed at once
    _stop_quickly()
    worker = celery_app(os.environ[BROKER], os.environ[QUEUE])
    celery_task(Workspace.from_environment().app(), worker)
    signals.worker_ready.connect(_say_so)
    worker.worker_main(["-q", "worker", "--without-gossip", "--without-mingle", *options])


def _stop_quickly() -> None:
    """Shorten what Celery waits for while it stops: its timer, a poll of the folder, its forked processes.

    Such a process would wait for half a minute to be sure that the worker has heard of its last task.
    """
    billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = 2
    timer: Any = timer2
    transport: Any = virtual.Transport
    drain_events: Any = transport.drain_events

    def sleep(delay: float) -> None:
        time.sleep(min(delay, 0.05))

    def drain_events_for_a_moment(self: Any, connection: Any, timeout: float | None = None) -> None:
        drain_events(self, connection, timeout and min(timeout, 0.1))

    timer.sleep, transport.drain_events = sleep, drain_events_for_a_moment


def _say_so(**_: Any) -> None:
    print("ready", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
