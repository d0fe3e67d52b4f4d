"""Child side of a cpu process: import the app's trains and run one job after another."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from functools import partial
from itertools import count
from logging.handlers import QueueHandler
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from trax.train import Cancellation, Failed, Run, enter_run, input_codec
from trax.train.outcome import describe
from trax.worker.messages import (
    ExecuteRequest,
    ProcessReady,
    RunEnded,
    StopRequest,
    WorkerRequest,
    WorkerResponse,
    pack_outcome,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from trax.train import Codec, Outcome, Train
    from trax.worker.messages import TrainReference


def serve(link: Connection[Any, Any]) -> None:
    """Main function of the process.

    Ctrl-C and systemd signal the whole process group; only the worker decides when to stop. The signals get
    an empty handler instead of SIG_IGN, which processes started by a run would inherit.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignore_signal)
    Child(link).run()


class Child:
    """Runs the jobs that arrive over the link. The process exits when the worker is gone."""

    def __init__(self, link: Connection[Any, Any]) -> None:
        self._link = link
        self._sending = Lock()
        self._work: SimpleQueue[tuple[ExecuteRequest, Cancellation]] = SimpleQueue()
        self._current_run: tuple[int, Cancellation] | None = None
        self._numbers = count()
        self._responses: dict[int, SimpleQueue[WorkerResponse]] = {}
        self._trains: dict[TrainReference, tuple[Train[Any, Any], Codec[Any]]] = {}

    def run(self) -> None:
        Thread(target=self._listen, name="trax cpu link", daemon=True).start()
        logging.getLogger().addHandler(LogForwarder(self))
        self._send(ProcessReady())
        with asyncio.Runner() as runner:
            while True:
                work, token = self._work.get()
                self._send(RunEnded(pack_outcome(runner.run(self._attempt(work, token)))))

    def request(self, handler: str, *arguments: Any) -> Any:
        """Send the worker a request of the run and wait for the response. Thread-safe."""
        number, responses = next(self._numbers), SimpleQueue[WorkerResponse]()
        self._responses[number] = responses
        self._send(WorkerRequest(handler, arguments, number))
        response = responses.get()
        if response.error is not None:
            raise response.error
        return response.value

    def notify(self, handler: str, *arguments: Any) -> None:
        """Send the worker a request without a response. Thread-safe."""
        self._send(WorkerRequest(handler, arguments))

    async def _attempt(self, request: ExecuteRequest, token: Cancellation) -> Outcome[Any]:
        logging.getLogger().setLevel(request.log_level)
        try:
            train, codec = self._load_train(request.reference)
            value = codec.decode(request.input)
        except BaseException as error:  # noqa: BLE001 - user code may raise anything
            return _build_failure(request, error)
        reporter, observer = partial(self.notify, "progress"), partial(self.notify, "junction")
        run = Run(
            **request.facts,
            cancellation=token,
            activator=ActivationProxy(self),
            reporter=reporter,
            secret_words=codec.secret_words(value),
        )
        with enter_run(run):
            try:
                return await train.attempt(
                    value, cancellation=token, external_id=run.external_id, on_junction=observer
                )
            except KeyboardInterrupt as error:  # raised by the run: signals are handled elsewhere
                return _build_failure(request, error)

    def _load_train(self, reference: TrainReference) -> tuple[Train[Any, Any], Codec[Any]]:
        if reference not in self._trains:
            train = reference.resolve()
            self._trains[reference] = train, input_codec(train)
        return self._trains[reference]

    def _listen(self) -> None:
        while True:
            try:
                message = self._link.recv()
            except (EOFError, OSError):
                os._exit(0)
            match message:
                case ExecuteRequest():
                    token = Cancellation()
                    self._current_run = message.metadata_id, token
                    self._work.put((message, token))
                case StopRequest():
                    self._stop(message)
                case WorkerResponse(number):
                    self._responses.pop(number).put(message)
                case _:
                    pass

    def _stop(self, request: StopRequest) -> None:
        if self._current_run is None or self._current_run[0] != request.metadata_id:
            return
        token = self._current_run[1]
        if request.interrupts:
            token.interrupt(request.reason)
        else:
            token.cancel(request.reason, timed_out=request.timed_out)

    def _send(self, message: Any) -> None:
        with self._sending:
            self._link.send(message)


class ActivationProxy:
    """Activates dependents of a run's manifest, through the worker."""

    def __init__(self, child: Child) -> None:
        self._child = child

    async def __call__(self, run: Run, wanted: list[tuple[str, Any]], /, *, force: bool) -> int:
        return await asyncio.to_thread(self.activate_blocking, run, wanted, force=force)

    def activate_blocking(self, _run: Run, wanted: list[tuple[str, Any]], /, *, force: bool) -> int:
        return self._child.request("activate", wanted, force)


class LogForwarder(QueueHandler):
    """Sends log records to the worker, which handles them as its own and the run's."""

    def __init__(self, child: Child) -> None:
        super().__init__(SimpleQueue())
        self._child = child

    def enqueue(self, record: logging.LogRecord) -> None:
        self._child.notify("log", record)


def _build_failure(request: ExecuteRequest, error: BaseException) -> Failed:
    names = {"train": request.reference.train, "external_id": request.facts["external_id"]}
    return Failed(error, describe(error, **names, junction=None))


def _ignore_signal(_number: int, _frame: object) -> None:
    pass
