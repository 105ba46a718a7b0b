"""Torments the local runner on Kafka: it dies at every step of its commits, is frozen, replaced, robbed of its disk and of its brokers.

Runs are forked from a process that has loaded everything, so that a life costs half a second and hundreds can be taken. One line is said for each.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

from millrace import faults, kafka
from millrace.config import Settings
from millrace.errors import Fenced, LogDamaged, RunFailed, StateUnreadable, TopicMissing
from millrace.log import Log, open_log
from millrace.measure.verifying import job
from millrace.transit.topics import CELL_COUNTS, POSITIONS

RUN = "chaos"
ONLY_ON_KAFKA = {"begun", "produced", "marked", "committed"}
"""Steps of a transaction; on the embedded log it is one of SQLite's."""
PATIENCE = 240.0
"""Seconds for whatever must happen in the end; more than it takes on a starved machine."""
TRANSACTION_MS = 5_000
FULL = 20.0
"""Seconds in which a run whose disk is full should need more of it."""
_CUTTER = "ss"
"""Of iproute2: `ss -K` ends connections of others, for root on Linux."""
YEAR = 365 * 86_400_000
DAMAGED = 4
"""How a run ends that found a damaged file."""
FENCED = 3
"""How a run ends that found itself replaced."""


def settings(url: str, state: Path) -> Settings:
    """Small batches, and transactions that may not take long."""
    client = {"transaction.timeout.ms": str(TRANSACTION_MS)} if url.startswith("kafka") else {}
    return Settings().changed(log_url=url, state_dir=state, run_name=RUN, run_max_events_per_batch=2_000, kafka_client=client)


def live(url: str, state: str, fault: str, until_caught_up: bool, jump: int = 0) -> None:
    """One life, in a process of its own. `jump`: by how much its clock is ahead for a second, after the first one."""
    from millrace.runners.clocks import elapsed_time, wall_clock
    from millrace.runners.local import Hooks, run_local

    began = elapsed_time()

    def clock() -> int:
        return wall_clock() + (jump if 1_000 <= elapsed_time() - began < 2_000 else 0)

    os.environ["POLARS_MAX_THREADS"] = "1"
    if fault:
        os.environ[faults.VARIABLE] = fault
    sys.stderr = Path(f"{state}.log").open("a")  # noqa: SIM115 - as long as the process lives
    try:
        run_local(
            [job()], settings=settings(url, Path(state)), until_caught_up=until_caught_up, hooks=Hooks(clock=clock, elapsed=elapsed_time)
        )
    except (StateUnreadable, LogDamaged) as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(DAMAGED)
    except Fenced as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(FENCED)


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


@dataclass
class Tally:
    """What was done to the run, and how long it took until there was a result again."""

    kills: Counter[str] = field(default_factory=Counter)
    troubles: Counter[str] = field(default_factory=Counter)
    recovered: dict[str, list[float]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """A line for each kind."""
        for what, count in sorted((self.kills + self.troubles).items()):
            times = sorted(self.recovered.get(what, []))
            seen = f"; next result after {times[len(times) // 2]:.1f} s (median), {times[-1]:.1f} s (most)" if times else ""
            yield f"{count:4} × {what}{seen}"


class Assassin:
    """Starts lives and takes them."""

    def __init__(self, url: str, folder: Path, cluster: kafka.Cluster | None, *, seed: int, say: Callable[[str], None]) -> None:
        self.cluster, self.on_kafka = cluster, url.startswith("kafka:")
        self._within = ("begun", "produced", "marked") if self.on_kafka else ("delivered",)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["millrace.measure.assassin", "millrace.runners.local", "millrace.log.kafka.log"])
        self._log, self._url, self.state = open_log(url), url, folder / "state"
        self._luck = random.Random(seed)  # noqa: S311 - moments, not secrets
        self._say = say
        self.tally = Tally()

    # The ways to go

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
        """Its clock is a year ahead for a second; it must go on meanwhile and afterwards."""
        with self._alive(jump=YEAR) as process:
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                self._await_result(process)
            self._noted("the clock was a year ahead for a second")

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
            self._await(lambda: _frozen(process), "it did not freeze")
            time.sleep(TRANSACTION_MS / 1000 + 3)
            os.kill(process.pid or 0, signal.SIGCONT)
            self._recovered("frozen beyond the transaction's time", time.monotonic(), process)
        self._noted("frozen beyond the transaction's time")

    def zombie(self) -> None:
        """Frozen within a transaction, thought dead, and replaced by a run on a copy of its state; when it wakes it must find itself fenced."""
        with self._alive(f"{self._luck.choice(self._within[-2:])}:3:stop") as old:
            self._await(lambda: _frozen(old), "it did not freeze")
            copy, before = self.state.with_name(f"state-{time.monotonic_ns()}"), self.state
            shutil.copytree(self.state, copy)
            self.state = copy
            with self._alive() as new:
                self._recovered("replaced while frozen", time.monotonic(), new)
                os.kill(old.pid or 0, signal.SIGCONT)
                self._await(lambda: not old.is_alive(), "the zombie did not end")
                if old.exitcode != FENCED:
                    raise RunFailed(f"the zombie ended with code {old.exitcode} and was not fenced: {self._last_words(before)}")
        shutil.rmtree(before)
        self._noted("replaced while frozen")

    def broker(self) -> None:
        """One of three brokers dies; results go on; it comes back."""
        cluster = self._brokers()
        victim = self._luck.choice(cluster.nodes)
        with self._alive() as process:
            self._await_result(process)
            os.kill(victim.pid or 0, signal.SIGKILL)
            began = time.monotonic()
            self._recovered("broker killed", began, process)
            self.tally.kills["broker killed"] += 1
            self.cluster = kafka.revive(cluster, victim.id)
            self._recovered("broker back", time.monotonic(), process)
        self._say(f"kill {sum(self.tally.kills.values())}: broker {victim.id}; it is back")

    def silence(self, seconds: float = 8) -> None:
        """All brokers stand still, so that every connection is silent, and some are given up."""
        cluster = self._brokers()
        with self._alive() as process:
            self._await_result(process)
            for node in cluster.nodes:
                os.kill(node.pid or 0, signal.SIGSTOP)
            time.sleep(seconds)
            for node in cluster.nodes:
                os.kill(node.pid or 0, signal.SIGCONT)
            self._recovered("brokers silent", time.monotonic(), process)
        self._noted("brokers silent")

    def cut(self, times: int = 20) -> None:
        """Every connection to a broker is cut, again and again, in the middle of whatever it carries."""
        ports = [port for node in self._brokers().nodes for port in (node.port, node.controller_port)]
        with self._alive() as process:
            self._await_result(process)
            for _ in range(times):
                for port in ports:
                    subprocess.run([_CUTTER, "-K", "-t", "dport", "=", f":{port}"], check=True, capture_output=True)
                time.sleep(self._luck.uniform(0.02, 0.3))
            self._recovered("connections cut", time.monotonic(), process)
        self._noted("connections cut")

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
        ballast.unlink()
        began = time.monotonic()
        with self._alive() as following:
            self._recovered("disk full", began, following)
        self._noted("disk full")

    def catch_up(self) -> None:
        """The last life: undisturbed, to the end of the log."""
        process = self._begin(until_caught_up=True)
        self._await(lambda: not process.is_alive(), "the last run did not catch up")
        if process.exitcode != 0:
            raise RunFailed(f"the last run ended with code {process.exitcode}: {self._last_words()}")

    # How

    def _brokers(self) -> kafka.Cluster:
        assert self.cluster is not None
        return self.cluster

    def _begin(self, fault: str = "", *, until_caught_up: bool = False, jump: int = 0) -> BaseProcess:
        words = (self._url, str(self.state), fault, until_caught_up, jump)
        process = self._context.Process(target=live, args=words, daemon=True)
        process.start()
        return process

    @contextlib.contextmanager
    def _alive(self, fault: str = "", *, jump: int = 0) -> Iterator[BaseProcess]:
        """A life that is taken in the end, if it still lasts."""
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
            raise RunFailed(f"it was to be {how}, but ended with code {process.exitcode}: {self._last_words()}")
        self.tally.kills[how] += 1
        self._say(f"kill {sum(self.tally.kills.values())}: {how}")

    def _noted(self, what: str) -> None:
        self.tally.troubles[what] += 1
        self._say(what)

    def _recovered(self, what: str, since: float, process: BaseProcess) -> None:
        self._await_result(process)
        self.tally.recovered.setdefault(what, []).append(time.monotonic() - since)

    def _await_result(self, process: BaseProcess) -> None:
        before = results(self._log)
        self._await(lambda: results(self._log) > before or not process.is_alive(), "no result")
        if not process.is_alive():
            raise RunFailed(f"a run ended by itself with code {process.exitcode}: {self._last_words()}")

    def _last_words(self, state: Path | None = None) -> str:
        with contextlib.suppress(OSError):
            return Path(f"{state or self.state}.log").read_text()[-1_500:]
        return "nothing"

    def _await(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise RunFailed(f"{otherwise} within {PATIENCE:.0f} s; it said: {self._last_words()}")
            time.sleep(0.02)


def results(log: Log) -> int:
    """How far the results reach."""
    try:
        return sum(log.ends(CELL_COUNTS.name).values())
    except TopicMissing:
        return 0


def _frozen(process: BaseProcess) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    return False


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
    cluster: kafka.Cluster | None,
    script: Script,
    *,
    calm: Callable[[], None],
    say: Callable[[str], None],
    behind: Callable[[Path], None] = lambda _: None,
) -> Tally:
    """What the script says, mixed; then, when no more events come (`calm`), the run catches up. `behind` is given its state folder before that."""
    log = open_log(url)
    log.ensure(POSITIONS)
    log.close()
    home = folder / "home"
    home.mkdir()
    with small_disk(home) as disk:
        assassin = Assassin(url, home, cluster, seed=script.seed, say=say)
        deadline = time.monotonic() + script.seconds
        for deed in _deeds(assassin, script, disk):
            if time.monotonic() > deadline:
                break
            deed()
        calm()
        behind(assassin.state)
        assassin.catch_up()
        return assassin.tally


def _deeds(assassin: Assassin, script: Script, disk: Path | None) -> list[Callable[[], object]]:
    deeds: list[Callable[[], object]] = []
    places = [place for place in faults.PLACES if assassin.on_kafka or place not in ONLY_ON_KAFKA]
    deeds.extend([partial(assassin.at, place) for place in places] * script.hits)
    others: list[Callable[[], object]] = [
        *(partial(assassin.at, place, torn=True) for place in ("planned", "stored")),
        *(assassin.any_time, assassin.any_time, assassin.at_work, assassin.at_work, assassin.freeze, assassin.zombie, assassin.clock_jump),
    ]
    if disk is not None:
        others.append(partial(assassin.full_disk, disk))
    if assassin.cluster is not None:
        others.append(assassin.silence)
        others += [assassin.broker] if len(assassin.cluster.nodes) > 1 else []
        others += [assassin.cut] if shutil.which(_CUTTER) and os.geteuid() == 0 else []
    deeds.extend(others * script.rounds)
    random.Random(script.seed).shuffle(deeds)  # noqa: S311 - an order, not a secret
    return deeds
