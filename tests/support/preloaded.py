"""Processes that need not import anything: forks of a server that has imported Trax.

Imports are most of what a short command costs. `PreloadedProcess` takes the place of `subprocess.Popen`, and
`run` that of `subprocess.run`: a command line of Python or of a script, and a process with an id, an
environment, a folder, streams and an exit code of its own. A test of what a start imports has to start Python
instead.

The server is started for the first command, and ends with the process that started it.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import warnings
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROJECT: Final = Path(__file__).parent.parent.parent
TRAX: Final = Path(sys.executable).with_name("trax")
LONGEST_REQUEST: Final = 200_000
STRICTLY: Final = ["-W", "error"]
LEFT_OUT: Final = (
    "trax.__main__",
    "trax.remote.celery",
    "trax.remote.ray",
    "trax.remote.sqs",
    "trax.store.migrations",
    "trax.testing._watch",
)
"""What few commands need, and programs."""
OF_OTHERS: Final = ("alembic.runtime.migration", "uvicorn.protocols.http.h11_impl")
"""What Trax imports only when it is used."""


class Request(NamedTuple):
    """What to run; with it come the streams, and a socket for the process id and the exit code."""

    words: list[str]
    folder: str
    environment: dict[str, str]
    new_session: bool
    preload: list[str]


class PreloadedProcess(subprocess.Popen[str]):
    """A command line that begins with Python or with a script of Python's. Its streams are text."""

    def __init__(
        self,
        words: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        start_new_session: bool = False,
        preload: Sequence[str] = (),
    ) -> None:
        """`preload` names modules for the server to import. A new session takes the terminal it is given."""
        self._request = Request(
            [os.fspath(word) for word in words],
            os.fspath(cwd or Path.cwd()),
            dict(os.environ if env is None else env),
            start_new_session,
            list(preload),
        )
        super().__init__(words, stdin=stdin, stdout=stdout, stderr=stderr, text=True, encoding="utf-8")

    def _execute_child(self, *given: Any) -> None:
        """As `Popen` does it, with a request instead of a fork and an exec."""
        pipes = given[10:16]
        streams = [
            own if theirs == -1 else theirs for own, theirs in enumerate((pipes[0], pipes[3], pipes[5]))
        ]
        self._told, theirs = socket.socketpair()
        with theirs:
            request = json.dumps(self._request).encode()
            socket.send_fds(_server(), [request], [*streams, theirs.fileno()])
        self.pid = self._next_number()
        self._child_created = True
        close: Any = getattr(self, "_close_pipe_fds")  # noqa: B009
        close(*pipes)

    def _next_number(self) -> int:
        told = self._told.recv(4, socket.MSG_WAITALL)
        assert told, "the server of warm processes is gone"
        return int.from_bytes(told, "big", signed=True)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._code_within(0)

    def _wait(self, timeout: float | None) -> int:
        code = self._code_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _code_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], seconds)[0]:
            self.returncode = self._next_number()
            self._told.close()
        return self.returncode


def run(
    words: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input: str | None = None,  # noqa: A002 - as subprocess calls it
    check: bool = False,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; what it says is captured."""
    process = PreloadedProcess(
        words,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            out, said = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    ended = subprocess.CompletedProcess(list(words), process.returncode, out, said)
    if check:
        ended.check_returncode()
    return ended


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [sys.executable, "-W", "error", "-m", __name__, str(theirs.fileno())]
    process = subprocess.Popen(words, cwd=PROJECT, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait(60)

    atexit.register(end)
    return ours


class Server:
    """Forks for each request, and tells who asked when a fork has ended."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self._telling: dict[int, socket.socket] = {}
        self._woken, self._waking = socket.socketpair()

    def serve(self) -> Program | None:
        """Until nobody asks any more; in a fork, return its program at once."""
        self._waking.setblocking(False)
        signal.set_wakeup_fd(self._waking.fileno())
        signal.signal(signal.SIGCHLD, _do_nothing)
        while True:
            ready, _, _ = select.select([self._asked, self._woken], [], [])
            if self._woken in ready:
                self._woken.recv(4096)
                self._tell_of_ends()
            if self._asked in ready:
                message, streams, _, _ = socket.recv_fds(self._asked, LONGEST_REQUEST, 4)
                if not message:
                    self._close()
                    return None
                if program := self._fork(Request(*json.loads(message)), streams):
                    return program

    def _fork(self, request: Request, streams: list[int]) -> Program | None:
        telling = socket.socket(fileno=streams.pop())
        for module in request.preload:
            import_module(module)
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            telling.close()
            self._close()
            return Program(request, streams)
        _send_number(telling, pid)
        self._telling[pid] = telling
        for stream in streams:
            os.close(stream)
        return None

    def _tell_of_ends(self) -> None:
        while self._telling:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._telling.pop(pid) as telling, suppress(OSError):  # who asked may be gone
                _send_number(telling, os.waitstatus_to_exitcode(status))

    def _close(self) -> None:
        for one in (self._asked, self._woken, self._waking, *self._telling.values()):
            one.close()


def _do_nothing(*_: object) -> None:
    """Be woken, which a signal without a handler does not do."""


def _send_number(telling: socket.socket, number: int) -> None:
    telling.sendall(number.to_bytes(4, "big", signed=True))


class Program(NamedTuple):
    """What a fork is to become."""

    request: Request
    streams: list[int]

    def run(self) -> None:
        self._take_streams()
        os.environ.clear()
        os.environ.update(self.request.environment)
        time.tzset()
        os.chdir(self.request.folder)
        words = self.request.words[1:] if self.request.words[0] == sys.executable else self.request.words
        if is_strict := words[:2] == STRICTLY:
            words = words[2:]
        _set_warnings(is_strict=is_strict)
        if is_strict:
            _run(words)  # with all that Python does at the end, for it may warn
        else:
            _run_and_end(words)

    def _take_streams(self) -> None:
        if self.request.new_session:
            os.setsid()
            if os.isatty(self.streams[0]):
                fcntl.ioctl(self.streams[0], termios.TIOCSCTTY, 0)
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
            os.close(stream)
        buffering = 1 if os.isatty(1) else -1
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = os.fdopen(1, "w", buffering, closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)


def _set_warnings(*, is_strict: bool) -> None:
    """As Python has it by default, or as it was told."""
    warnings.resetwarnings()
    sys.warnoptions[:] = ["error"] if is_strict else []
    if is_strict:
        warnings.simplefilter("error")
        return
    for category in (ResourceWarning, ImportWarning, PendingDeprecationWarning, DeprecationWarning):
        warnings.simplefilter("ignore", category)
    warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")


def _run(words: list[str]) -> None:
    """As Python does it."""
    if words[0] == "-m":
        sys.path[0] = str(Path.cwd())
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    program = sys.modules["__main__"] = ModuleType("__main__")
    if words[0] == "-c":
        sys.path[0], sys.argv = "", ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec", dont_inherit=True), program.__dict__)  # noqa: S102
        return
    sys.path[0], sys.argv = str(Path(words[0]).resolve().parent), words
    program.__file__ = words[0]
    exec(compile(Path(words[0]).read_bytes(), words[0], "exec", dont_inherit=True), program.__dict__)  # noqa: S102


def _run_and_end(words: list[str]) -> None:
    """Without the last thing Python does, to take all modules apart: it is half of a short command."""
    code: object = 0
    try:
        _run(words)
    except SystemExit as ended:
        code = ended.code or 0
        if not isinstance(code, int):
            raise
    threads: Any = threading
    threads._shutdown()
    exits: Any = atexit
    exits._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _import_trax() -> None:
    for module in pkgutil.walk_packages(import_module("trax").__path__, "trax."):
        if not module.name.startswith(LEFT_OUT):
            import_module(module.name)
    for name in OF_OTHERS:
        import_module(name)


def main() -> None:
    _import_trax()
    program = Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if program:
        program.run()


if __name__ == "__main__":
    main()
