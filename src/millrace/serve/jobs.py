"""The state of the jobs, from the status records of their runs."""

import threading
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Any

from millrace.log.status import Status

RATE_MS = 10_000
"""Milliseconds over which rates are measured."""
LATENCY_MS = 60_000
"""Milliseconds over which the median latency is taken."""


class Jobs:
    """The statuses of the last minute of each run. One thread adds them, others read summaries."""

    def __init__(self) -> None:
        """Starts without runs."""
        self._runs: dict[str, deque[Status]] = {}
        self._lock = threading.Lock()

    def add(self, run: str, statuses: Sequence[Status]) -> None:
        """Adds statuses of a run, in their order."""
        with self._lock:
            recent = self._runs.setdefault(run, deque())
            recent.extend(statuses)
            while len(recent) > 1 and recent[0].at < recent[-1].at - LATENCY_MS:
                recent.popleft()

    def summaries(self, now: int) -> list[dict[str, Any]]:
        """Every job of every run, as of its last batch. Rates are zero if there was no batch for
        `RATE_MS`.
        """
        with self._lock:
            runs = {run: list(statuses) for run, statuses in self._runs.items() if statuses}
        return [
            _summarize_job(job, run, statuses, now)
            for run, statuses in sorted(runs.items())
            for job in statuses[-1].jobs
        ]


def _summarize_job(job: str, run: str, statuses: list[Status], now: int) -> dict[str, Any]:
    last = statuses[-1]
    reads, writes = last.reads.get(job, []), last.writes.get(job, [])
    latencies = [status.latency[topic] for status in statuses for topic in writes if topic in status.latency]
    return {
        "job": job,
        "run": run,
        "writes": writes,
        "watermark": None if last.has_ended(job) else last.watermark_of(job),
        "ended": last.has_ended(job),
        "held_back": _held_back(last, job),
        "quarantined": last.quarantined.get(job),
        "lag_events": sum(last.lag.get(topic, 0) for topic in reads),
        "events_per_s": _rate([(status.at, status.read) for status in statuses], now),
        "results_per_s": _rate(
            [(status.at, sum(status.results.get(topic, 0) for topic in writes)) for status in statuses], now
        ),
        "latency_ms": round(median(latencies)) if latencies else None,
        "batch": last.batch,
        "batch_ms": last.took_ms,
        "last_batch_at": last.at,
    }


def _held_back(status: Status, job: str) -> dict[str, Any] | None:
    """What holds the job's watermark back: a partition without any event comes first, then the one furthest
    behind.
    """
    holds = [hold for operator, hold in status.holds.items() if operator.partition("/")[0] == job]
    worst = min(holds, key=lambda hold: (hold.behind is not None, -(hold.behind or 0)), default=None)
    return (
        None
        if worst is None
        else {"topic": worst.topic, "partition": worst.partition, "behind_ms": worst.behind}
    )


def _rate(counts: list[tuple[int, int]], now: int) -> float | None:
    """The rate per second between the first and last batch of `RATE_MS`; None while there is only one."""
    last = counts[-1][0]
    if now - last > RATE_MS:
        return 0.0
    recent = [entry for entry in counts if entry[0] >= last - RATE_MS]
    elapsed = last - recent[0][0]
    return round(sum(count for _, count in recent[1:]) * 1000 / elapsed, 1) if elapsed else None
