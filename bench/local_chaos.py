"""Torments the local runner: it dies at every step of its commits, is frozen, replaced, robbed of its disk and of its brokers.

What is done is a fault: a call that inflicts it once and returns when the run has recovered. `deeds` mixes them as a script says.
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
from bench.killable_runs import FENCED, RUN, TRANSACTION_MS, Fault, Say, Tally, frozen
from millrace.devtools import brokers
from millrace.errors import RunFailed
from millrace.log import fault_points, open_log
from millrace.transit.topics import POSITIONS

ONLY_ON_KAFKA = {"begun", "produced", "marked", "committed"}
"""Steps of a transaction; on the embedded log it is one of SQLite's."""
FULL = 20.0
"""Seconds in which a run whose disk is full should need more of it."""
FAILED = 1
"""The exit code of a run that ended with an error."""
JUMP = 30 * 86_400_000
"""By how much the clock is ahead the first time; then by twice as much, and so on."""
NOTICED = "the clock of this machine jumped"
"""What a run says of it."""
STEPS = "steps"
"""The kind of fault that a kill at a step of the commit is; `Script.hits` says how many, and `Script.rounds` of all others."""
KINDS = (
    *(STEPS, "torn", "any-time", "at-work", "freeze", "zombie", "clock", "disk"),
    *("broker", "rolling", "down", "silence", "cut", "first"),
)
"""What can be done to a run; the second half is done to its brokers."""


@dataclass(frozen=True)
class Script:
    """How much is done to a run."""

    hits: int
    """Kills at each place of the commit."""
    rounds: int
    """Of all other trouble."""
    seed: int = 1
    seconds: float = math.inf
    """After which nothing more is begun."""
    flips: int = 30
    """How many bits are flipped in copies of an embedded log and its state, in the end."""
    only: Collection[str] = KINDS
    """The kinds of fault that are inflicted; of these, those that can be inflicted here."""


class Assassin(BrokerFaults):
    """Starts runs and ends them."""

    def __init__(
        self, url: str, folder: Path, cluster: brokers.Cluster | None, *, seed: int, say: Say
    ) -> None:
        super().__init__(url, folder, cluster, seed=seed, say=say)
        self._jumps = 0
        self._within = ("begun", "produced", "marked") if self.on_kafka else ("delivered",)

    def at(self, place: str, *, torn: bool = False) -> None:
        """Dies at a step of its commit; `torn`: and the end of what it wrote last to its checkpoint is not there."""
        number = self._luck.randint(2, 4)
        process = self._begin(f"{place}:{number}")
        self._await(lambda: not process.is_alive(), f"it did not come by {place}")
        self._killed(process, f"killed at {place}" + (", checkpoint torn" if torn else ""))
        wal = self.state / RUN / "local.db-wal"
        if torn and wal.exists():
            os.truncate(wal, max(0, wal.stat().st_size - self._luck.randint(1, 2_000)))

    def any_time(self) -> None:
        """Dies whenever."""
        process = self._begin()
        time.sleep(self._luck.uniform(0, 1.5))
        os.kill(process.pid or 0, signal.SIGKILL)
        self._killed(process, "killed at any time")

    def clock_jump(self) -> None:
        """Its clock is ahead for a second, by more than ever before; it must notice, and go on meanwhile and afterwards."""
        before = self._said().count(NOTICED)
        self._jumps += 1
        with self._alive(jump=self._jumps * JUMP) as process:
            self._await(
                lambda: self._said().count(NOTICED) > before or not process.is_alive(),
                "the jump was not noticed",
            )
            began = time.monotonic()
            self._recovered("clock jumped", began, process)
            while time.monotonic() < began + 3:
                self._await_result(process)
        self._noted("clock jumped")

    def at_work(self) -> None:
        """Dies while results flow; notes how long the next one takes."""
        process = self._begin()
        self._await_result(process)
        time.sleep(self._luck.uniform(0, 0.3))
        os.kill(process.pid or 0, signal.SIGKILL)
        began = time.monotonic()
        self._killed(process, "killed at work")
        with self._alive() as following:
            self._recovered("killed at work", began, following)

    def freeze(self) -> None:
        """Stands still within a transaction for longer than that may take; then it must go on, without writing anything twice."""
        with self._alive(f"{self._luck.choice(self._within)}:3:stop") as process:
            self._await(lambda: frozen(process), "it did not freeze")
            time.sleep(TRANSACTION_MS / 1000 + 3)
            os.kill(process.pid or 0, signal.SIGCONT)
            self._recovered("frozen beyond the transaction's time", time.monotonic(), process)
        self._noted("frozen beyond the transaction's time")

    def zombie(self) -> None:
        """Frozen within a transaction, thought dead, and replaced by a run on a copy of its state; when it wakes it must find itself fenced."""
        with self._alive(f"{self._luck.choice(self._within[-2:])}:3:stop") as old:
            self._await(lambda: frozen(old), "it did not freeze")
            copy, before = self.state.with_name(f"state-{time.monotonic_ns()}"), self.state
            shutil.copytree(self.state, copy)
            self.state = copy
            with self._alive() as new:
                self._recovered("replaced while frozen", time.monotonic(), new)
                os.kill(old.pid or 0, signal.SIGCONT)
                self._await(lambda: not old.is_alive(), "the zombie did not end")
                if old.exitcode != FENCED:
                    raise RunFailed(
                        f"the zombie ended with code {old.exitcode} and was not fenced: {self._last_words(before)}"
                    )
        shutil.rmtree(before)
        self._noted("replaced while frozen")

    def full_disk(self, disk: Path) -> None:
        """The disk of the state is full: the run ends with an error when it needs more, and goes on when there is space."""
        ballast = disk / "ballast"
        process = self._begin()
        self._await_result(process)
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        process.join(FULL)
        if process.is_alive():  # what it writes has found room in what it had
            self._await_result(process)
            os.kill(process.pid or 0, signal.SIGKILL)
            self._killed(process, "killed with its disk full")
        elif process.exitcode != FAILED:
            raise RunFailed(
                f"a run whose disk was full ended with code {process.exitcode}: {self._last_words()}"
            )
        ballast.unlink()
        began = time.monotonic()
        with self._alive() as following:
            self._recovered("disk full", began, following)
        self._noted("disk full")


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A file system of 32 MiB for the state, where this user may mount one."""
    if os.geteuid() != 0:
        yield None
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def torment(
    url: str,
    folder: Path,
    cluster: brokers.Cluster | None,
    script: Script,
    *,
    calm: Callable[[], None],
    say: Say,
    behind: Callable[[Path], None] = lambda _: None,
) -> Tally:
    """What the script says, mixed; then, when no more events come (`calm`), the run catches up.

    `behind` is given its state folder before that.
    """
    log = open_log(url)
    log.ensure(POSITIONS)
    log.close()
    home = folder / "home"
    home.mkdir()
    with small_disk(home) as disk:
        assassin = Assassin(url, home, cluster, seed=script.seed, say=say)
        deadline = time.monotonic() + script.seconds
        for _, deed in deeds(assassin, script, disk):
            if time.monotonic() > deadline:
                break
            deed()
        calm()
        behind(assassin.state)
        assassin.catch_up()
        return assassin.tally


def deeds(assassin: Assassin, script: Script, disk: Path | None) -> list[tuple[str, Fault]]:
    """All that the script says and that can be done here, with its kind, in the order in which it is done."""
    places = [place for place in fault_points.PLACES if assassin.on_kafka or place not in ONLY_ON_KAFKA]
    steps: list[tuple[str, Fault]] = [(STEPS, partial(assassin.at, place)) for place in places]
    others: list[tuple[str, Fault]] = [
        *(("torn", partial(assassin.at, place, torn=True)) for place in ("planned", "stored")),
        *[("any-time", assassin.any_time), ("at-work", assassin.at_work)] * 2,
        *(("freeze", assassin.freeze), ("zombie", assassin.zombie), ("clock", assassin.clock_jump)),
        *assassin.broker_faults().items(),
    ]
    if disk is not None:
        others.append(("disk", partial(assassin.full_disk, disk)))
    chosen = [deed for deed in steps * script.hits + others * script.rounds if deed[0] in script.only]
    random.Random(script.seed).shuffle(chosen)  # noqa: S311 - an order, not a secret
    return chosen
