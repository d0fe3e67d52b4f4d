"""Run a function in a forked child, and get its result."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 60


class Child(NamedTuple):
    """A forked process, and the pipe with what it returns."""

    pid: int
    reader: int

    def result(self) -> Any:
        """Wait until it has ended; fail if it raised, or did not end in time."""
        with os.fdopen(self.reader, "rb") as pipe:
            told = pipe.read()
        os.waitpid(self.pid, 0)
        assert told, "the child was killed"
        is_error, value = pickle.loads(told)  # noqa: S301 - it is ours
        assert not is_error, value
        return value


def fork(work: Callable[[], Any]) -> Child:
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads beside a fork: it is what we test
        pid = os.fork()
    if pid:
        os.close(writer)
        return Child(pid, reader)
    try:
        signal.alarm(SECONDS)  # ends it
        try:
            told = False, work()
        except BaseException:  # noqa: BLE001 - shown by the parent
            told = True, traceback.format_exc()
        with suppress(Exception), os.fdopen(writer, "wb") as pipe:
            pipe.write(pickle.dumps(told))
    finally:
        os._exit(0)  # without the finalizers of the test run
