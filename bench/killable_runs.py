"""Runs of the local runner in processes that can be killed: started, watched for results, and tallied.

A run is forked from a process that has loaded everything, so that a start costs half a second and hundreds can be made.
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

from bench.city_flow import ends, statuses
from bench.verifying import job
from millrace.config import Settings
from millrace.errors import Fenced, LogDamaged, RunFailed, StateUnreadable
from millrace.log import Log, fault_points, open_log

RUN = "chaos"
PATIENCE = 240.0
"""Seconds for whatever must happen in the end; more than it takes on a starved machine."""
WAIT = "4m"
"""How long runs wait for brokers: on a starved machine these may take longer to start again than `kafka.wait` is by default."""
TRANSACTION_MS = 5_000
DAMAGED = 4
"""The exit code of a run that found a damaged file."""
FENCED = 3
"""The exit code of a run that found itself replaced."""
Say = Callable[[str], None]
"""Takes a line for whoever watches."""
Fault = Callable[[], object]
"""Inflicts a fault once, and returns when the run has recovered."""


def settings(url: str, state: Path) -> Settings:
    """Small batches, and transactions that may not take long."""
    client = {"transaction.timeout.ms": str(TRANSACTION_MS)} if url.startswith("kafka") else {}
    where = {"log_url": url, "state_dir": state, "run_name": RUN, "kafka_wait": WAIT, "kafka_client": client}
    return Settings().changed(**where, run_max_events_per_batch=2_000)


@dataclass
class JumpingClock:
    """A wall clock that is ahead by `jump` for a second, from one second after it was asked first."""

    jump: int
    wall: Callable[[], int]
    elapsed: Callable[[], int]
    _began: int | None = None
    _jumped: bool = False

    def __call__(self) -> int:
        """The time now. A process that gets no time in that second sees the jump later, but it sees it."""
        now = self.elapsed()
        self._began = now if self._began is None else self._began
        passed = now - self._began
        if passed < 1_000 or (self._jumped and passed >= 2_000):
            return self.wall()
        self._jumped = True
        return self.wall() + self.jump


def live(url: str, state: str, fault: str, until_caught_up: bool, jump: int = 0) -> None:
    """One run, in a process of its own. `jump`: by how much its clock is ahead for a second, after the first one."""
    from millrace.runners.batch_clock import elapsed_time, wall_clock
    from millrace.runners.local import Hooks, run_local

    os.environ["POLARS_MAX_THREADS"] = "1"
    if fault:
        os.environ[fault_points.VARIABLE] = fault
    sys.stderr = Path(f"{state}.log").open("a")  # noqa: SIM115 - as long as the process lives
    hooks = Hooks(clock=JumpingClock(jump, wall_clock, elapsed_time), elapsed=elapsed_time)
    try:
        run_local([job()], settings=settings(url, Path(state)), until_caught_up=until_caught_up, hooks=hooks)
    except (StateUnreadable, LogDamaged) as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(DAMAGED)
    except Fenced as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(FENCED)


@dataclass
class Tally:
    """How often each fault was inflicted, and how long it took until there was a result again."""

    kills: Counter[str] = field(default_factory=Counter)
    troubles: Counter[str] = field(default_factory=Counter)
    recovered: dict[str, list[float]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """A line for each kind."""
        for what, count in sorted((self.kills + self.troubles).items()):
            times = sorted(self.recovered.get(what, []))
            median, most = (times[len(times) // 2], times[-1]) if times else (0.0, 0.0)
            seen = f"; next result after {median:.1f} s (median), {most:.1f} s (most)" if times else ""
            yield f"{count:4} × {what}{seen}"


def results_since(log: Log, upto: Mapping[int, int]) -> list[int]:
    """When batches with results were committed, in milliseconds since the epoch, from these offsets of their status on.

    That a topic grows says less: on Kafka an aborted transaction takes up offsets, too.
    """
    return [batch.at for batch in statuses(log, RUN, upto) if any(batch.results.values())]


class Lives:
    """Starts runs over one log and one state folder, and waits for what they commit."""

    def __init__(self, url: str, folder: Path, *, seed: int, say: Say, tally: Tally | None = None) -> None:
        self.on_kafka = url.startswith("kafka:")
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            ["bench.killable_runs", "millrace.runners.local", "millrace.log.kafka.log"]
        )
        self._url, self.state = url, folder / "state"
        self._log = open_log(settings(url, self.state))
        self._luck = random.Random(seed)  # noqa: S311 - moments, not secrets
        self._say = say
        self.tally = tally or Tally()

    def catch_up(self) -> None:
        """The last run: undisturbed, to the end of the log."""
        process = self._begin(until_caught_up=True)
        self._await(lambda: not process.is_alive(), "the last run did not catch up")
        if process.exitcode != 0:
            raise RunFailed(f"the last run ended with code {process.exitcode}: {self._last_words()}")

    def _begin(self, fault: str = "", *, until_caught_up: bool = False, jump: int = 0) -> BaseProcess:
        words = (self._url, str(self.state), fault, until_caught_up, jump)
        process = self._context.Process(target=live, args=words, daemon=True)
        process.start()
        return process

    @contextlib.contextmanager
    def _alive(self, fault: str = "", *, jump: int = 0) -> Iterator[BaseProcess]:
        """A run that is killed in the end, if it still lasts."""
        process = self._begin(fault, jump=jump)
        try:
            yield process
        finally:
            if process.is_alive():
                os.kill(process.pid or 0, signal.SIGKILL)
                self.tally.kills["killed at the end of a trial"] += 1
            process.join()

    def _killed(self, process: BaseProcess, how: str) -> None:
        process.join()
        if process.exitcode != -signal.SIGKILL:
            raise RunFailed(
                f"it was to be {how}, but ended with code {process.exitcode}: {self._last_words()}"
            )
        self.tally.kills[how] += 1
        self._say(f"kill {sum(self.tally.kills.values())}: {how}")

    def _noted(self, what: str) -> None:
        self.tally.troubles[what] += 1
        times = self.tally.recovered.get(what)
        self._say(f"{what}; next result after {times[-1]:.1f} s" if times else what)

    def _recovered(self, what: str, since: float, process: BaseProcess) -> None:
        self._await_result(process)
        self.tally.recovered.setdefault(what, []).append(time.monotonic() - since)

    def _await_result(self, process: BaseProcess) -> int:
        """Returns when one more batch with results is committed: when that was, in milliseconds since the epoch."""
        return self._await_batch(process, ends(self._log, RUN))

    def _await_batch(self, process: BaseProcess, upto: Mapping[int, int]) -> int:
        """The same from an offset on."""
        self._await(lambda: bool(results_since(self._log, upto)) or not process.is_alive(), "no result")
        self._check_alive(process)
        return results_since(self._log, upto)[0]

    def _check_alive(self, process: BaseProcess) -> None:
        if not process.is_alive():
            raise RunFailed(f"a run ended by itself with code {process.exitcode}: {self._last_words()}")

    def _last_words(self, state: Path | None = None) -> str:
        return self._said(state)[-1_500:] or "nothing"

    def _said(self, state: Path | None = None) -> str:
        """What runs over a state have written to their standard error so far."""
        with contextlib.suppress(OSError):
            return Path(f"{state or self.state}.log").read_text()
        return ""

    def _await(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise RunFailed(f"{otherwise} within {PATIENCE:.0f} s; it said: {self._last_words()}")
            time.sleep(0.02)


def frozen(process: BaseProcess) -> bool:
    """Whether a process stands still after SIGSTOP."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    return False
