"""Local runs in processes that can be killed.

A run is forked from a process that has imported everything, so a start takes half a second and a test can
afford hundreds.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from bench.city_flow import read_statuses, status_ends
from bench.verdict import make_job
from millrace.config import Settings
from millrace.errors import Fenced, LogDamaged, RunFailed, StateUnreadable
from millrace.log import Log, fault_points, open_log

RUN = "chaos"
PRELOADED = ("bench.killable_runs", "millrace.runners.local", "millrace.log.kafka.log")
"""Modules that are imported before runs are forked.
They must start no pool of threads: it would be missing in the runs.
"""
TIMEOUT = 240.0
"""Seconds that anything may take; it is enough on a machine that is busy with other work."""
WAIT = "4m"
"""How long runs wait for brokers.
On a busy machine brokers may take longer to restart than `kafka.wait` is by default.
"""
TRANSACTION_MS = 5_000
DAMAGED = 4
"""The exit code of a run that found a damaged file."""
FENCED = 3
"""The exit code of a run that found itself replaced."""
ReportLine = Callable[[str], None]
"""Prints a line about the progress."""
Fault = Callable[[], object]
"""Injects a fault once, and returns when the run has recovered."""


def settings(url: str, state: Path) -> Settings:
    """Settings with small batches and a short timeout of transactions."""
    client = {"transaction.timeout.ms": str(TRANSACTION_MS)} if url.startswith("kafka") else {}
    where = {"log_url": url, "state_dir": state, "run_name": RUN, "kafka_wait": WAIT, "kafka_client": client}
    return Settings().with_options(**where, run_max_events_per_batch=2_000)


@dataclass
class JumpingClock:
    """A wall clock that is ahead by `jump` for a second, beginning one second after its first reading.

    The first two readings are never ahead: a run compares the clock with earlier readings, so it could not
    notice that jump.
    """

    jump: int
    wall: Callable[[], int]
    elapsed: Callable[[], int]
    _started_at: int | None = None
    _has_jumped: bool = False
    _readings: int = 0

    def __call__(self) -> int:
        """The time. The first reading after that second begins is ahead, even if it comes late."""
        self._readings += 1
        now = self.elapsed()
        self._started_at = now if self._started_at is None else self._started_at
        passed = now - self._started_at
        if self._readings <= 2 or passed < 1_000 or (self._has_jumped and passed >= 2_000):
            return self.wall()
        self._has_jumped = True
        return self.wall() + self.jump


def run_once(url: str, state: str, fault: str, until_caught_up: bool, jump: int = 0) -> None:
    """One run, in a process of its own. `jump`: how far its clock is ahead in its second second."""
    from millrace.runners.batch_clock import elapsed_time, wall_clock
    from millrace.runners.local import Hooks, run_local

    os.environ["POLARS_MAX_THREADS"] = "1"
    if fault:
        os.environ[fault_points.VARIABLE] = fault
    sys.stderr = Path(f"{state}.log").open("a")  # noqa: SIM115 - as long as the process lives
    hooks = Hooks(clock=JumpingClock(jump, wall_clock, elapsed_time), elapsed=elapsed_time)
    try:
        run_local(
            [make_job()], settings=settings(url, Path(state)), until_caught_up=until_caught_up, hooks=hooks
        )
    except (StateUnreadable, LogDamaged) as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(DAMAGED)
    except Fenced as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(FENCED)


@dataclass
class Tally:
    """How often each fault was injected, and how long it took until the next result."""

    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    recovery_times: dict[str, list[float]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """A line for each kind."""
        for kind, count in sorted((self.kills + self.faults).items()):
            times = sorted(self.recovery_times.get(kind, []))
            median, most = (times[len(times) // 2], times[-1]) if times else (0.0, 0.0)
            seen = f"; next result after {median:.1f} s (median), {most:.1f} s (most)" if times else ""
            yield f"{count:4} × {kind}{seen}"


def result_times_since(log: Log, upto: Mapping[int, int]) -> list[int]:
    """When batches with results were committed, in milliseconds since the epoch, from these offsets of the
    status topic on.

    Offsets of the results do not show that: on Kafka an aborted transaction takes offsets, too.
    """
    return [batch.at for batch in read_statuses(log, RUN, upto) if any(batch.results.values())]


class KillableRuns:
    """Starts runs over one log and one state folder, and waits for what they commit."""

    def __init__(
        self, url: str, folder: Path, *, seed: int, report: ReportLine, tally: Tally | None = None
    ) -> None:
        self.on_kafka = url.startswith("kafka:")
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*PRELOADED])
        self._url, self.state = url, folder / "state"
        self._log = open_log(settings(url, self.state))
        self._random = random.Random(seed)  # noqa: S311 - moments, not secrets
        self._report = report
        self.tally = tally or Tally()

    def catch_up(self) -> None:
        """Runs to the end of the log, without a fault."""
        process = self._start(until_caught_up=True)
        self._wait_for(lambda: not process.is_alive(), "the last run did not catch up")
        if process.exitcode != 0:
            raise RunFailed(f"the last run ended with code {process.exitcode}: {self._last_output()}")

    def _start(self, fault: str = "", *, until_caught_up: bool = False, jump: int = 0) -> BaseProcess:
        arguments = (self._url, str(self.state), fault, until_caught_up, jump)
        process = self._context.Process(target=run_once, args=arguments, daemon=True)
        process.start()
        return process

    @contextlib.contextmanager
    def _running(self, fault: str = "", *, jump: int = 0) -> Iterator[BaseProcess]:
        """A run that is killed at the end of the block, unless it has ended."""
        process = self._start(fault, jump=jump)
        try:
            yield process
        finally:
            if process.is_alive():
                os.kill(process.pid or 0, signal.SIGKILL)
                self.tally.kills["killed at the end of a trial"] += 1
            process.join()

    def _note_kill(self, process: BaseProcess, how: str) -> None:
        process.join()
        if process.exitcode != -signal.SIGKILL:
            raise RunFailed(
                f"it was to be {how}, but ended with code {process.exitcode}: {self._last_output()}"
            )
        self.tally.kills[how] += 1
        self._report(f"kill {sum(self.tally.kills.values())}: {how}")

    def _note_fault(self, kind: str) -> None:
        self.tally.faults[kind] += 1
        times = self.tally.recovery_times.get(kind)
        self._report(f"{kind}; next result after {times[-1]:.1f} s" if times else kind)

    def _note_recovery(self, kind: str, since: float, process: BaseProcess) -> None:
        self._await_result(process)
        self.tally.recovery_times.setdefault(kind, []).append(time.monotonic() - since)

    def _await_result(self, process: BaseProcess) -> int:
        """Waits until one more batch with results is committed; returns that time,
        in milliseconds since the epoch.
        """
        return self._await_batch(process, status_ends(self._log, RUN))

    def _await_batch(self, process: BaseProcess, upto: Mapping[int, int]) -> int:
        """Waits for a batch with results after these offsets of the status topic."""
        self._wait_for(
            lambda: bool(result_times_since(self._log, upto)) or not process.is_alive(), "no result"
        )
        self._check_alive(process)
        return result_times_since(self._log, upto)[0]

    def _check_alive(self, process: BaseProcess) -> None:
        if not process.is_alive():
            raise RunFailed(f"a run ended by itself with code {process.exitcode}: {self._last_output()}")

    def _last_output(self, state: Path | None = None) -> str:
        return self._read_output(state)[-1_500:] or "nothing"

    def _read_output(self, state: Path | None = None) -> str:
        """What the runs over a state folder have printed."""
        with contextlib.suppress(OSError):
            return Path(f"{state or self.state}.log").read_text()
        return ""

    def _wait_for(self, condition: Callable[[], bool], failure: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            if time.monotonic() > deadline:
                raise RunFailed(f"{failure} within {TIMEOUT:.0f} s; its output: {self._last_output()}")
            time.sleep(0.02)


def is_stopped(process: BaseProcess) -> bool:
    """Whether a process is stopped by SIGSTOP."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    return False
