"""The processes of the demo. They start and end together; one that is killed is started again."""

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
from millrace.devtools.demo.options import DemoOptions
from millrace.errors import RunFailed
from millrace.runners.processes import kill_trees

STOP_TIMEOUT, KILL_TIMEOUT = 7.0, 2.0
"""Seconds that processes have to end after SIGTERM, and after SIGKILL: together less than ten."""
MAX_RESTARTS = 3
"""How often a killed process is started again."""
_SHOWN_LINES = 8
"""How many last lines of a failed process are shown."""


@dataclass(frozen=True, eq=False)
class DemoProcess:
    """One process: a command of millrace and the file with its output."""

    name: str
    arguments: tuple[str, ...]
    output: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Default environment variables; those of the user win."""

    def last_lines(self, most: int = _SHOWN_LINES) -> list[str]:
        """The last lines of its output."""
        try:
            text = self.output.read_text(errors="replace")
        except OSError:
            return []
        return [line.rstrip() for line in text.replace("\r", "\n").splitlines() if line.strip()][-most:]


def demo_processes(options: DemoOptions) -> list[DemoProcess]:
    """The jobs, the city and the server."""
    log = ("--log", options.log_url)
    city = (
        "ingest",
        "simulator",
        "--scale",
        f"{options.scale:g}",
        "--seed",
        str(options.seed),
        "--volume",
        "mean",
        "--events",
        "all",
        *log,
    )
    job = ("run", *JOBS, "--on", options.on, "--name", options.run, "--state", str(options.state), *log)
    server = ("serve", "--port", str(options.port), *log)
    environment = {"POLARS_MAX_THREADS": "1"}
    return [
        DemoProcess(
            "job",
            job,
            options.home / "job.log",
            {"MILLRACE_RUN_SLOTS": "1", CITY: str(options.city), SEED: str(options.seed)},
        ),
        DemoProcess("city", city, options.home / "city.log", environment),
        DemoProcess("server", server, options.home / "server.log", environment),
    ]


class DemoProcesses:
    """The running processes. As a context manager it stops all of them at the end, whatever happens
    inside.
    """

    def __init__(self) -> None:
        self._running: dict[DemoProcess, subprocess.Popen[bytes]] = {}
        self._restarts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, processes: Iterable[DemoProcess]) -> None:
        """Starts all of them at once, with empty output files."""
        for process in processes:
            process.output.write_bytes(b"")
            self._running[process] = _start_process(process)

    def restart_killed(self) -> Iterator[str]:
        """Starts killed processes again, and yields a line for each. `RunFailed`, with the last output, if
        one ended by itself.
        """
        for member, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            if code >= 0 or self._restarts[member.name] == MAX_RESTARTS:
                raise RunFailed(_describe_end(member, code))
            self._restarts[member.name] += 1
            self._running[member] = _start_process(member)
            restarts = f"{self._restarts[member.name]} of {MAX_RESTARTS}"
            yield (
                f"the {member.name} was ended by {signal.Signals(-code).name} "
                f"and starts again where it stopped ({restarts})"
            )

    def stop(self) -> None:
        """Sends SIGTERM, waits, and kills the rest. When it returns, no process is left."""
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT
        while (
            any(process.poll() is None for process in self._running.values()) and time.monotonic() < deadline
        ):
            time.sleep(0.02)
        kill_trees(
            [process.pid for process in self._running.values() if process.poll() is None],
            timeout=KILL_TIMEOUT,
        )
        for process in self._running.values():
            process.wait()
        self._running.clear()


def _start_process(part: DemoProcess) -> "subprocess.Popen[bytes]":
    """Starts a session of its own, so that Ctrl-C in the terminal only reaches the demo, which stops the
    others in order.
    """
    with part.output.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "millrace.devtools.demo.child", str(os.getpid()), *part.arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**part.environment, **os.environ},
        )


def _describe_end(part: DemoProcess, code: int) -> str:
    cause = (
        f"was ended by {signal.Signals(-code).name} once too often" if code < 0 else f"ended with code {code}"
    )
    last_lines = "".join(f"\n    {line}" for line in part.last_lines()) or " It printed nothing."
    return (
        f"the {part.name} {cause}, so the demo ends; nothing is lost, and --fresh begins anew. "
        f"Its last lines (all are in {part.output}):{last_lines}"
    )
