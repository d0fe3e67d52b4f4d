"""Engines whose worker side is a fork of the warm process."""

# pyright: reportPrivateUsage=false, reportIncompatibleVariableOverride=false
from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any, Final

from tests.support.preloaded import PreloadedProcess

from trax.testing.submitter_contract import EngineProcess, ProcessEngine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trax.testing.submitter_contract import Workspace

PRELOADED: Final = {
    "tests.support.celery_worker": (
        "celery.apps.worker",
        "celery.concurrency.prefork",
        "celery.concurrency.solo",
        "celery.concurrency.thread",
        "celery.worker.consumer",
        "kombu.transport.filesystem",
        "kombu.transport.pyamqp",
        "kombu.transport.redis",
        "trax.remote.celery",
    ),
    "tests.support.sqs_consumer": ("boto3.session", "trax.remote.sqs"),
}
"""What a worker side imports that few others need."""


class PreloadedEngine(ProcessEngine):
    """An engine of which a test may start the worker side several times."""

    async def launch(self, *command: str, site: Workspace, **environment: str) -> None:
        self._process = await PreloadedEngineProcess.start(*command, site=site, **environment)


class PreloadedEngineProcess(EngineProcess):
    def __init__(self, command: Sequence[str], environment: Mapping[str, str], site: Workspace) -> None:
        log = site.folder / f"far-{len(list(site.folder.glob('far-*')))}.log"
        with log.open("wb") as errors:
            self._process: Any = PreloadedProcess(
                command,
                env={**os.environ, **site.environment, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                preload=PRELOADED.get(command[2], ()),
            )
