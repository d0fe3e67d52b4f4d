"""A page that is typed in: the files it shows, its commands, and what it says they answer.

- A python block that begins with `# jobs.py` is that file; with `# add to jobs.py`, what is added to it.
- In a console block `$ …` is typed, `^C` goes to the server that was started last, and the lines below are
  what must be answered, in this order. `…` stands for anything, and space is space however much.
- A number that names a row (the first column of a table, or the entry spoken of) may be another one: what
  is typed later means the row that stood there.
- An answer that begins with `trax:` is that of a command that fails.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support import preloaded
from tests.support.preloaded import TRAX, PreloadedProcess
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK: Final = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE: Final = re.compile(r"# (add to )?(\S+\.py)\n")
STEP: Final = re.compile(r"^(?:\$ (?P<typed>.*)|\^C)\n(?P<answer>(?:(?!\$ |\^C).*\n)*)", re.MULTILINE)
SERVES: Final = re.compile(r"trax (run|worker|scheduler)\b")
LOOKS: Final = re.compile(r"trax (status|why|\S+ (list|show))\b")
POINTS_AT_ROWS: Final = re.compile(r"trax (why|\S+ (show|cancel|requeue))\b")
PLAIN: Final = re.compile(r"trax [^|&;<>$`\\]*")
SETS: Final = re.compile(r"export (\w+)=(\S+)")
NAMES_A_ROW: Final = re.compile(r"^\d+(?=  )|(?<=entry )\d+", re.MULTILINE)
TIMEOUT_SECONDS: Final = 60


@dataclass
class Server:
    """A command that runs until it is asked to stop."""

    process: PreloadedProcess
    output: Path

    def told(self) -> str:
        return plain(self.output.read_text(encoding="utf-8", errors="replace"))  # it may still be writing

    def told_alive(self) -> str:
        assert self.process.poll() is None, self.told()
        return self.told()


@dataclass
class Typist:
    """Types a page into a folder of its own."""

    folder: Path
    addresses: dict[str, str] = field(default_factory=dict[str, str])
    """Those that the page speaks of, and what they are here."""
    rows: dict[str, str] = field(default_factory=dict[str, str])
    servers: list[Server] = field(default_factory=list[Server])

    def __post_init__(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TRAX_")}
        self.environment = {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def save_files(self, page: str) -> None:
        for kind, text in BLOCK.findall(page):
            if kind == "python":
                self._save(text)

    def type_in(self, page: str) -> None:
        try:
            for kind, text in BLOCK.findall(page):
                if kind == "python":
                    self._save(text)
                else:
                    self._converse(text)
        finally:
            for server in self.servers:
                server.process.kill()
                server.process.wait()

    def _save(self, text: str) -> None:
        if named := FILE.match(text):
            with (self.folder / named[2]).open("a" if named[1] else "w", encoding="utf-8") as file:
                file.write(text)

    def _converse(self, text: str) -> None:
        for step in STEP.finditer(text):
            typed, answer = step["typed"], step["answer"]
            if typed is None:
                self._stop(answer)
            elif setting := SETS.match(typed):
                self.environment[setting[1]] = self._meant(setting[2])
            elif SERVES.match(typed):
                self._serve(self._meant(typed), answer)
            else:
                self._ask(self._meant(typed), answer)

    def _serve(self, typed: str, answer: str) -> None:
        output = self.folder / f"server-{len(list(self.folder.glob('server-*')))}.log"
        with output.open("wb") as file:
            process = PreloadedProcess(
                [TRAX, *shlex.split(typed)[1:]],
                cwd=self.folder,
                env=self.environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        server = Server(process, output)
        self.servers.append(server)
        heard(server.told_alive, answer, typed, again=True)

    def _stop(self, answer: str) -> None:
        server = self.servers.pop()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(TIMEOUT_SECONDS) == 0
        heard(server.told, answer, "^C")

    def _ask(self, typed: str, answer: str) -> None:
        """Look again until it says what the page says; what changes something is typed once."""
        fails, looks = answer.startswith("trax:"), LOOKS.match(typed) is not None
        found = heard(lambda: self._told(typed, fails=fails), answer, typed, again=looks)
        self.rows.update(zip(rows_named(answer), found.groups(), strict=True))

    def _told(self, typed: str, *, fails: bool) -> str:
        ended = self._run(typed)
        assert (ended.returncode != 0) == fails, f"$ {typed}\n{ended.stdout}{ended.stderr}"
        return plain(ended.stdout + ended.stderr)

    def _run(self, typed: str) -> subprocess.CompletedProcess[str]:
        """Our own command needs no shell, if it is ours and a shell would not change it."""
        is_ours = shutil.which("trax", path=self.environment["PATH"]) == str(TRAX)
        if is_ours and PLAIN.fullmatch(typed):
            words = [TRAX, *shlex.split(typed)[1:]]
            return preloaded.run(words, cwd=self.folder, env=self.environment, timeout=TIMEOUT_SECONDS)
        return subprocess.run(
            ["sh", "-c", typed],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )

    def _meant(self, typed: str) -> str:
        other = {**self.addresses, **(self.rows if POINTS_AT_ROWS.match(typed) else {})}
        return " ".join(other.get(word, word) for word in typed.split(" "))


def heard(told: Callable[[], str], answer: str, typed: str, *, again: bool = False) -> re.Match[str]:
    """Where the answer stands in what is told, now or, asking again and again, at last."""
    pattern, last = expected(answer), ""
    found: list[re.Match[str]] = []

    def answers() -> bool:
        nonlocal last
        last = ""
        last = told()
        found.extend(pattern.finditer(last))
        return bool(found)

    try:
        until(answers, within_seconds=TIMEOUT_SECONDS if again else 0)
    except AssertionError as failed:
        raise AssertionError(f"$ {typed}\n{last or failed}\nis not\n{answer}") from None
    return found[0]


def plain(text: str) -> str:
    """One space where there is space, so that tables and lines parted by tabs are alike."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def expected(answer: str) -> re.Pattern[str]:
    """What finds these lines, in this order; its groups are the numbers of the rows they name."""
    lines = plain(NAMES_A_ROW.sub("№", answer)).splitlines()
    pattern = "(?s:.*?)".join(re.escape(line) for line in lines)
    return re.compile(re.sub(r"(\\ )?…(\\ )?", ".*", pattern.replace("№", r"(\d+)")))


def rows_named(answer: str) -> list[str]:
    return NAMES_A_ROW.findall(answer)
