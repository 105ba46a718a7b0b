"""The processes of the demo: they start together and end together, and one that was killed is started again."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from millrace.devtools.demo.jobs import CITY, JOBS, SEED
from millrace.devtools.demo.wishes import Wishes
from millrace.errors import RunFailed
from millrace.runners.processes import end_trees

GRACE, INSIST = 7.0, 2.0
"""Seconds that parts have to end of their own accord, and that they may take to vanish when killed: together less than ten."""
CHANCES = 3
"""How often a part that was killed is started again."""
_SHOWN = 8
"""How many of its last lines are shown when a part has failed."""


@dataclass(frozen=True, eq=False)
class Part:
    """One process: a command of millrace, and where what it says is kept."""

    name: str
    words: tuple[str, ...]
    output: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """What suits it, unless the user's own says otherwise."""

    def last_lines(self, most: int = _SHOWN) -> list[str]:
        """What it said last."""
        try:
            said = self.output.read_text(errors="replace")
        except OSError:
            return []
        return [line.rstrip() for line in said.replace("\r", "\n").splitlines() if line.strip()][-most:]


def parts_of(wishes: Wishes) -> list[Part]:
    """City, jobs and server."""
    log = ("--log", wishes.log_url)
    city = (
        "ingest",
        "--simulator",
        "--scale",
        f"{wishes.scale:g}",
        "--seed",
        str(wishes.seed),
        "--volume",
        "mean",
        "--events",
        "all",
        *log,
    )
    job = ("run", *JOBS, "--on", wishes.on, "--name", wishes.run, "--state", str(wishes.state), *log)
    server = ("serve", "--port", str(wishes.port), *log)
    few = {"POLARS_MAX_THREADS": "1"}
    return [
        Part(
            "job",
            job,
            wishes.home / "job.log",
            {"MILLRACE_SPARK_SLOTS": "1", CITY: str(wishes.city), SEED: str(wishes.seed)},
        ),
        Part("city", city, wishes.home / "city.log", few),
        Part("server", server, wishes.home / "server.log", few),
    ]


class Parts:
    """Those that are running. Use it as a context: whatever happens inside, nothing is left running behind it."""

    def __init__(self) -> None:
        self._running: dict[Part, subprocess.Popen[bytes]] = {}
        self._again: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, parts: Iterable[Part]) -> None:
        """Starts all of them at once; what they said the last time is forgotten."""
        for part in parts:
            part.output.write_bytes(b"")
            self._running[part] = _started(part)

    def revive(self) -> Iterator[str]:
        """Starts again what was killed, and says so; `RunFailed` with its last words where a part gave up of its own accord."""
        for part, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            if code >= 0 or self._again[part.name] == CHANCES:
                raise RunFailed(_obituary(part, code))
            self._again[part.name] += 1
            self._running[part] = _started(part)
            yield f"the {part.name} was ended by {signal.Signals(-code).name} and starts again where it stopped ({self._again[part.name]} of {CHANCES})"

    def stop(self) -> None:
        """Asks all to end, waits, and insists; when it returns none is left."""
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + GRACE
        while (
            any(process.poll() is None for process in self._running.values()) and time.monotonic() < deadline
        ):
            time.sleep(0.02)
        end_trees(
            [process.pid for process in self._running.values() if process.poll() is None], patience=INSIST
        )
        for process in self._running.values():
            process.wait()
        self._running.clear()


def _started(part: Part) -> "subprocess.Popen[bytes]":
    """In a session of its own, so that Ctrl-C in the terminal reaches the demo alone, which then ends its parts in order."""
    with part.output.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "millrace.devtools.demo.child", str(os.getpid()), *part.words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**part.environment, **os.environ},
        )


def _obituary(part: Part, code: int) -> str:
    how = (
        f"was ended by {signal.Signals(-code).name} once too often" if code < 0 else f"ended with code {code}"
    )
    said = "".join(f"\n    {line}" for line in part.last_lines()) or " It said nothing."
    return f"the {part.name} {how}, so the demo ends; nothing is lost, and --fresh begins anew. Its last words (all are in {part.output}):{said}"
