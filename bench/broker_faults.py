"""Faults of brokers under a run: one or all killed, restarted in turn, silent, disconnected, or just started.

Three brokers hold three replicas, and a commit needs two of them. So a run goes on while one broker is down,
and waits up to `kafka.wait` while more of them are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from bench.city_flow import status_ends
from bench.event_feeder import feed_events
from bench.killable_runs import RUN, TIMEOUT, Fault, KillableRuns, ReportLine, result_times_since
from bench.verdict import compare
from millrace.devtools import brokers
from millrace.errors import RunFailed
from millrace.transit.topics import POSITIONS

FIRST_STARTS = 3
"""How many runs start at the same time on brokers that have never held a topic."""
FIRST = "first start"
_CUTTER = "ss"
"""Of iproute2: `ss -K` ends connections of other processes, for root on Linux."""


def restart_broker(cluster: brokers.Cluster, node: brokers.BrokerNode) -> brokers.Cluster:
    """Stops one broker regularly, starts it again, and waits until it answers."""
    brokers.stop(replace(cluster, nodes=(node,)))
    return brokers.restart(cluster, node.id, timeout=TIMEOUT)


def kill_all(cluster: brokers.Cluster) -> None:
    """Kills all brokers at once with SIGKILL."""
    for node in cluster.nodes:
        os.kill(node.pid or 0, signal.SIGKILL)
    brokers.stop(cluster)


def longest_gap(start: int, moments: Sequence[int]) -> int:
    """The longest time between two neighbours of these moments, `start` included."""
    return max((after - before for before, after in pairwise([start, *moments])), default=0)


class BrokerFaults(KillableRuns):
    """Injects faults of brokers into runs over a log on Kafka."""

    def __init__(
        self, url: str, folder: Path, cluster: brokers.Cluster | None, *, seed: int, report: ReportLine
    ) -> None:
        super().__init__(url, folder, seed=seed, report=report)
        self.cluster, self._folder = cluster, folder

    def kill_broker(self) -> None:
        """Kills one of three brokers, waits for results without it, and starts it again."""
        cluster = self._running_brokers()
        victim = self._random.choice(cluster.nodes)
        with self._running() as process:
            self._await_result(process)
            os.kill(victim.pid or 0, signal.SIGKILL)
            began = time.monotonic()
            self._note_recovery("broker killed", began, process)
            self.tally.kills["broker killed"] += 1
            self.cluster = brokers.restart(cluster, victim.id, timeout=TIMEOUT)
            self._note_recovery("broker back", time.monotonic(), process)
        self._report(f"kill {sum(self.tally.kills.values())}: broker {victim.id}; it is back")

    def restart_each_broker(self) -> None:
        """Restarts each broker, one right after the other; the run must go on by itself.

        An operator would wait for replicas to be in sync between two brokers; here the next one is stopped as
        soon as the one before answers. The recovery time is the longest time without a result since the first
        stop.
        """
        with self._running() as process:
            self._await_result(process)
            upto, began = status_ends(self._log, RUN), time.time_ns() // 1_000_000
            for node in self._running_brokers().nodes:
                self.cluster = restart_broker(self._running_brokers(), node)
                self._check_alive(process)
            self._await_result(process)
            self.tally.recovery_times.setdefault("rolling restart", []).append(
                longest_gap(began, result_times_since(self._log, upto)) / 1000
            )
        self._note_fault("rolling restart")

    def kill_all_brokers(self) -> None:
        """Kills all brokers at once, and starts them again after a while; the run must go on by itself."""
        with self._running() as process:
            self._await_result(process)
            kill_all(self._running_brokers())
            time.sleep(self._random.uniform(1, 20))
            self.cluster = brokers.restart(
                self._running_brokers(),
                *(node.id for node in self._running_brokers().nodes),
                timeout=TIMEOUT,
            )
            self._check_alive(process)
            self._note_recovery("all brokers down", time.monotonic(), process)
        self._note_fault("all brokers down")

    def start_on_new_brokers(self) -> None:
        """Starts several runs at once on three new brokers, which have no topic yet.

        Events come from the beginning as well. Each run has topics of its own, and its results are verified.
        """
        first_folder = self._folder.parent / f"first-{time.monotonic_ns()}"
        fresh = brokers.start(first_folder / "kafka", brokers=3, port=0, timeout=TIMEOUT)
        try:
            with contextlib.ExitStack() as stack:
                for number in range(FIRST_STARTS):
                    seed, url = self._random.randrange(1 << 30), f"{fresh.url}/run-{number}"
                    start = FirstStart(
                        url, first_folder / str(number), seed=seed, report=self._report, tally=self.tally
                    )
                    stack.enter_context(start.verify())
        finally:
            brokers.stop(brokers.load_cluster(first_folder / "kafka") or fresh, timeout=5)
            shutil.rmtree(first_folder)

    def pause_brokers(self, seconds: float = 8) -> None:
        """Stops all brokers with SIGSTOP, so that every connection is silent and some time out."""
        cluster = self._running_brokers()
        with self._running() as process:
            self._await_result(process)
            for node in cluster.nodes:
                os.kill(node.pid or 0, signal.SIGSTOP)
            time.sleep(seconds)
            for node in cluster.nodes:
                os.kill(node.pid or 0, signal.SIGCONT)
            self._note_recovery("brokers silent", time.monotonic(), process)
        self._note_fault("brokers silent")

    def cut_connections(self, times: int = 20) -> None:
        """Closes every connection to a broker, again and again, in the middle of any message."""
        ports = [port for node in self._running_brokers().nodes for port in (node.port, node.controller_port)]
        with self._running() as process:
            self._await_result(process)
            cut_count = 0
            for _ in range(times):
                for port in ports:
                    command = [_CUTTER, "-K", "-H", "-t", "dport", "=", f":{port}"]
                    completed = subprocess.run(command, check=True, capture_output=True, text=True)
                    cut_count += len(completed.stdout.splitlines())
                time.sleep(self._random.uniform(0.02, 0.3))
            if not cut_count:
                raise RunFailed(f"`{_CUTTER} -K` cut no connection: this kernel may not be able to")
            self._note_recovery("connections cut", time.monotonic(), process)
        self._note_fault("connections cut")

    def broker_faults(self) -> dict[str, Fault]:
        """The faults that these brokers and this machine permit, by name."""
        if self.cluster is None:
            return {}
        found: dict[str, Fault] = {"silence": self.pause_brokers, "down": self.kill_all_brokers}
        if len(self.cluster.nodes) > 1:
            found |= {
                "broker": self.kill_broker,
                "rolling": self.restart_each_broker,
                "first": self.start_on_new_brokers,
            }
        if shutil.which(_CUTTER) and os.geteuid() == 0:
            found["cut"] = self.cut_connections
        return found

    def _running_brokers(self) -> brokers.Cluster:
        assert self.cluster is not None
        return self.cluster


class FirstStart(KillableRuns):
    """A run that starts together with its events, on a log without topics."""

    @contextlib.contextmanager
    def verify(self) -> Iterator[None]:
        """Starts the run; at the end of the block waits for results, catches up, and verifies them."""
        self.state.parent.mkdir(parents=True)
        began = time.time_ns() // 1_000_000
        with self._running() as process:
            self._log.ensure(POSITIONS)
            with feed_events(self._log, vehicles=100, seed=self._random.randrange(1 << 30), pace=0.2):
                yield
                first_result = self._await_batch(process, {})
                self._await_result(process)
        self.tally.recovery_times.setdefault(FIRST, []).append((first_result - began) / 1000)
        self.catch_up()
        verdict = compare(self._log, 0)
        self._log.close()
        if not verdict.is_right:
            raise RunFailed(f"after a {FIRST}: {verdict}")
        self._note_fault(FIRST)
