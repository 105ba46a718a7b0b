"""Injects faults into local runs: kills at every step of a commit, freezes, zombies, full disks, jumps of the
clock, failing brokers.

A fault is a call that injects it once and returns when the run has recovered. `plan_faults` puts the faults
of a plan in an order.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.broker_faults import BrokerFaults
from bench.killable_runs import FENCED, RUN, TRANSACTION_MS, Fault, ReportLine, Tally, is_stopped
from millrace.devtools import brokers
from millrace.errors import RunFailed
from millrace.log import fault_points, open_log
from millrace.transit.topics import POSITIONS

ONLY_ON_KAFKA = {"begun", "produced", "marked", "committed"}
"""Steps of a transaction; on the embedded log it is one of SQLite's."""
DISK_FULL_TIMEOUT = 20.0
"""Seconds within which a run should need more of a full disk."""
FAILED = 1
"""The exit code of a run that ended with an error."""
JUMP = 30 * 86_400_000
"""How far the clock jumps the first time, in milliseconds; the second time twice as far, and so on."""
CLOCK_JUMP_MESSAGE = "the clock of this machine jumped"
"""The warning of a run."""
STEPS = "steps"
"""The kind of a kill at a step of the commit.
`FaultPlan.hits` is their number, `FaultPlan.rounds` that of all others.
"""
KINDS = (
    *(STEPS, "torn", "any-time", "at-work", "freeze", "zombie", "clock", "disk"),
    *("broker", "rolling", "down", "silence", "cut", "first"),
)
"""The kinds of faults; the second half are faults of brokers."""


@dataclass(frozen=True)
class FaultPlan:
    """Which faults are injected, and how often."""

    hits: int
    """Kills at each step of the commit."""
    rounds: int
    """How often each other fault is injected."""
    seed: int = 1
    seconds: float = math.inf
    """No fault is injected after so many seconds."""
    flips: int = 30
    """How many bits are flipped in copies of an embedded log and its state at the end."""
    only: Collection[str] = KINDS
    """The kinds of faults that are injected, as far as this machine permits them."""


class FaultInjector(BrokerFaults):
    """Injects faults into runs over one log."""

    def __init__(
        self, url: str, folder: Path, cluster: brokers.Cluster | None, *, seed: int, report: ReportLine
    ) -> None:
        super().__init__(url, folder, cluster, seed=seed, report=report)
        self._jumps = 0
        self._steps_in_transaction = ("begun", "produced", "marked") if self.on_kafka else ("delivered",)

    def kill_at_step(self, step: str, *, is_torn: bool = False) -> None:
        """Kills a run at a step of its commit.
        `is_torn`: and cuts off the end of its last write to the checkpoint.
        """
        number = self._random.randint(2, 4)
        process = self._start(f"{step}:{number}")
        self._wait_for(lambda: not process.is_alive(), f"it did not reach {step}")
        self._note_kill(process, f"killed at {step}" + (", checkpoint torn" if is_torn else ""))
        wal = self.state / RUN / "local.db-wal"
        if is_torn and wal.exists():
            os.truncate(wal, max(0, wal.stat().st_size - self._random.randint(1, 2_000)))

    def kill_at_any_time(self) -> None:
        """Kills a run at a random moment after its start."""
        process = self._start()
        time.sleep(self._random.uniform(0, 1.5))
        os.kill(process.pid or 0, signal.SIGKILL)
        self._note_kill(process, "killed at any time")

    def make_clock_jump(self) -> None:
        """Sets the clock of a run ahead for a second, further than before.
        It must warn, and give results meanwhile and afterwards.
        """
        before = self._read_output().count(CLOCK_JUMP_MESSAGE)
        self._jumps += 1
        with self._running(jump=self._jumps * JUMP) as process:
            self._wait_for(
                lambda: self._read_output().count(CLOCK_JUMP_MESSAGE) > before or not process.is_alive(),
                "the jump was not noticed",
            )
            began = time.monotonic()
            self._note_recovery("clock jumped", began, process)
            while time.monotonic() < began + 3:
                self._await_result(process)
        self._note_fault("clock jumped")

    def kill_at_work(self) -> None:
        """Kills a run while it gives results, and measures the time to the next result."""
        process = self._start()
        self._await_result(process)
        time.sleep(self._random.uniform(0, 0.3))
        os.kill(process.pid or 0, signal.SIGKILL)
        began = time.monotonic()
        self._note_kill(process, "killed at work")
        with self._running() as following:
            self._note_recovery("killed at work", began, following)

    def freeze_in_transaction(self) -> None:
        """Freezes a run within a transaction beyond its timeout.
        Then it must go on, and write nothing twice.
        """
        with self._running(f"{self._random.choice(self._steps_in_transaction)}:3:stop") as process:
            self._wait_for(lambda: is_stopped(process), "it did not freeze")
            time.sleep(TRANSACTION_MS / 1000 + 3)
            os.kill(process.pid or 0, signal.SIGCONT)
            self._note_recovery("frozen beyond the transaction's time", time.monotonic(), process)
        self._note_fault("frozen beyond the transaction's time")

    def replace_frozen_run(self) -> None:
        """Freezes a run within a transaction, and replaces it by a run on a copy of its state.
        When it wakes up, it must be fenced.
        """
        with self._running(f"{self._random.choice(self._steps_in_transaction[-2:])}:3:stop") as frozen_run:
            self._wait_for(lambda: is_stopped(frozen_run), "it did not freeze")
            state_copy, old_state = self.state.with_name(f"state-{time.monotonic_ns()}"), self.state
            shutil.copytree(self.state, state_copy)
            self.state = state_copy
            with self._running() as new_run:
                self._note_recovery("replaced while frozen", time.monotonic(), new_run)
                os.kill(frozen_run.pid or 0, signal.SIGCONT)
                self._wait_for(lambda: not frozen_run.is_alive(), "the zombie did not end")
                if frozen_run.exitcode != FENCED:
                    raise RunFailed(
                        f"the zombie ended with code {frozen_run.exitcode} and was not fenced: "
                        f"{self._last_output(old_state)}"
                    )
        shutil.rmtree(old_state)
        self._note_fault("replaced while frozen")

    def fill_disk(self, disk: Path) -> None:
        """Fills the disk of the state.
        The run must end with an error when it needs more, and go on when there is space again.
        """
        ballast = disk / "ballast"
        process = self._start()
        self._await_result(process)
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        process.join(DISK_FULL_TIMEOUT)
        if process.is_alive():  # its writes still fit into the space that it had
            self._await_result(process)
            os.kill(process.pid or 0, signal.SIGKILL)
            self._note_kill(process, "killed with its disk full")
        elif process.exitcode != FAILED:
            raise RunFailed(
                f"a run whose disk was full ended with code {process.exitcode}: {self._last_output()}"
            )
        ballast.unlink()
        began = time.monotonic()
        with self._running() as following:
            self._note_recovery("disk full", began, following)
        self._note_fault("disk full")


@contextlib.contextmanager
def mount_small_disk(folder: Path) -> Iterator[Path | None]:
    """A file system of 32 MiB for the state; None where this user may not mount one."""
    if os.geteuid() != 0:
        yield None
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def run_faults(
    url: str,
    folder: Path,
    cluster: brokers.Cluster | None,
    plan: FaultPlan,
    *,
    stop_events: Callable[[], None],
    report: ReportLine,
    inspect_state: Callable[[Path], None] = lambda _: None,
) -> Tally:
    """Injects the faults of the plan in a random order. Then `stop_events` is called, and the run catches up.

    `inspect_state` is called with the state folder before that.
    """
    log = open_log(url)
    log.ensure(POSITIONS)
    log.close()
    run_folder = folder / "home"
    run_folder.mkdir()
    with mount_small_disk(run_folder) as disk:
        injector = FaultInjector(url, run_folder, cluster, seed=plan.seed, report=report)
        deadline = time.monotonic() + plan.seconds
        for _, fault in plan_faults(injector, plan, disk):
            if time.monotonic() > deadline:
                break
            fault()
        stop_events()
        inspect_state(injector.state)
        injector.catch_up()
        return injector.tally


def plan_faults(injector: FaultInjector, plan: FaultPlan, disk: Path | None) -> list[tuple[str, Fault]]:
    """The faults of the plan that this machine permits, with their kinds, in a random order."""
    commit_steps = [place for place in fault_points.POINTS if injector.on_kafka or place not in ONLY_ON_KAFKA]
    steps: list[tuple[str, Fault]] = [
        (STEPS, partial(injector.kill_at_step, place)) for place in commit_steps
    ]
    others: list[tuple[str, Fault]] = [
        *(("torn", partial(injector.kill_at_step, place, is_torn=True)) for place in ("planned", "stored")),
        *[("any-time", injector.kill_at_any_time), ("at-work", injector.kill_at_work)] * 2,
        *(
            ("freeze", injector.freeze_in_transaction),
            ("zombie", injector.replace_frozen_run),
            ("clock", injector.make_clock_jump),
        ),
        *injector.broker_faults().items(),
    ]
    if disk is not None:
        others.append(("disk", partial(injector.fill_disk, disk)))
    planned = [entry for entry in steps * plan.hits + others * plan.rounds if entry[0] in plan.only]
    random.Random(plan.seed).shuffle(planned)  # noqa: S311 - an order, not a secret
    return planned
