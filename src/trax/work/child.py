"""The inside of a process for cpu trains: it imports the app's trains, and runs one job after another."""

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

from trax.train import Cancellation, Failed, Run, entered, input_codec
from trax.train.failure import describe
from trax.work.messages import Answered, Asked, Ended, Ready, Stop, Work, packed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from trax.train import Codec, Outcome, Train
    from trax.work.reference import Reference


def serve(link: Connection[Any, Any]) -> None:
    """The whole life of the process.

    A signal to a whole group of processes, as by Ctrl-C or systemd, reaches the worker too, and only the
    worker decides. The signals are heard and not ignored: what a run starts would inherit that.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_it_to_the_worker)
    Child(link).run()


class Child:
    """Runs what comes over the link. When the worker is gone, so is the process."""

    def __init__(self, link: Connection[Any, Any]) -> None:
        self._link = link
        self._sending = Lock()
        self._work: SimpleQueue[tuple[Work, Cancellation]] = SimpleQueue()
        self._under_way: tuple[int, Cancellation] | None = None
        self._numbers = count()
        self._waiting: dict[int, SimpleQueue[Answered]] = {}
        self._trains: dict[Reference, tuple[Train[Any, Any], Codec[Any]]] = {}

    def run(self) -> None:
        Thread(target=self._listen, name="trax cpu link", daemon=True).start()
        logging.getLogger().addHandler(Lines(self))
        self._send(Ready())
        with asyncio.Runner() as runner:
            while True:
                work, token = self._work.get()
                self._send(Ended(packed(runner.run(self._attempt(work, token)))))

    def ask(self, what: str, *arguments: Any) -> Any:
        """Have the worker do something for the run, and wait for the answer. Any thread may."""
        number, answers = next(self._numbers), SimpleQueue[Answered]()
        self._waiting[number] = answers
        self._send(Asked(what, arguments, number))
        answer = answers.get()
        if answer.error is not None:
            raise answer.error
        return answer.value

    def tell(self, what: str, *arguments: Any) -> None:
        """Let the worker know of something, without waiting."""
        self._send(Asked(what, arguments))

    async def _attempt(self, work: Work, token: Cancellation) -> Outcome[Any]:
        logging.getLogger().setLevel(work.log_level)
        try:
            train, codec = self._train(work.reference)
            value = codec.decode(work.input)
        except BaseException as error:  # noqa: BLE001 - the module is the user's, and may fail in any way
            return _failed(work, error)
        reporter, observer = partial(self.tell, "progress"), partial(self.tell, "junction")
        run = Run(
            **work.facts,
            cancellation=token,
            activator=Activating(self),
            reporter=reporter,
            secret_words=codec.secret_words(value),
        )
        with entered(run):
            try:
                return await train.attempt(
                    value, cancellation=token, external_id=run.external_id, on_junction=observer
                )
            except KeyboardInterrupt as error:  # no signal raises it here: the run did
                return _failed(work, error)

    def _train(self, reference: Reference) -> tuple[Train[Any, Any], Codec[Any]]:
        if reference not in self._trains:
            train = reference.resolved()
            self._trains[reference] = train, input_codec(train)
        return self._trains[reference]

    def _listen(self) -> None:
        while True:
            try:
                message = self._link.recv()
            except (EOFError, OSError):
                os._exit(0)
            match message:
                case Work():
                    token = Cancellation()
                    self._under_way = message.metadata_id, token
                    self._work.put((message, token))
                case Stop():
                    self._stop(message)
                case Answered(number):
                    self._waiting.pop(number).put(message)
                case _:
                    pass

    def _stop(self, wish: Stop) -> None:
        if self._under_way is None or self._under_way[0] != wish.metadata_id:
            return
        token = self._under_way[1]
        if wish.interrupts:
            token.interrupt(wish.reason)
        else:
            token.cancel(wish.reason, timed_out=wish.timed_out)

    def _send(self, message: Any) -> None:
        with self._sending:
            self._link.send(message)


class Activating:
    """Wakes the dependents of a run's manifest, through the worker."""

    def __init__(self, child: Child) -> None:
        self._child = child

    async def __call__(self, run: Run, wanted: list[tuple[str, Any]], /, *, force: bool) -> int:
        return await asyncio.to_thread(self.blocking, run, wanted, force=force)

    def blocking(self, _run: Run, wanted: list[tuple[str, Any]], /, *, force: bool) -> int:
        return self._child.ask("activate", wanted, force)


class Lines(QueueHandler):
    """Log lines on their way to the worker, which handles them as the run's and its own."""

    def __init__(self, child: Child) -> None:
        super().__init__(SimpleQueue())
        self._child = child

    def enqueue(self, record: logging.LogRecord) -> None:
        self._child.tell("log", record)


def _failed(work: Work, error: BaseException) -> Failed:
    names = {"train": work.reference.train, "external_id": work.facts["external_id"]}
    return Failed(error, describe(error, **names, junction=None))


def _leave_it_to_the_worker(_number: int, _frame: object) -> None:
    pass
