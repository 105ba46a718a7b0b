"""A run that refuses more than a few percent of its rows says so,
with the watermark that would have taken them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress

from millrace import graph
from millrace.config import Settings
from millrace.engine.late_share import LateShare, lags_of_rows
from millrace.engine.plan import Plan
from millrace.errors import MillraceError
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode
from millrace.stream import Job

WARN_AFTER_ROWS = 10_000
"""After so many rows a run that goes on says it, once; one that ends says it at the end."""
SAMPLE_RECORDS = 50_000
"""How many of the newest records of a partition are examined for a sufficient delay."""

_log = logging.getLogger("millrace.run")


class LateRowMonitor:
    """Counts the rows that each job has read, and the late ones."""

    def __init__(self, jobs: Sequence[Job], settings: Settings) -> None:
        self._settings = settings
        self._read_nodes = {job.name: _find_read_nodes(job) for job in jobs}
        self._shares = {job.name: LateShare() for job in jobs}
        self._warned: set[str] = set()

    def add(self, counts: Mapping[str, int]) -> None:
        """Takes a batch into account: its counts `read/TOPIC`, `late/JOB` and `future/JOB`."""
        for job, share in self._shares.items():
            share.rows += sum(
                counts.get(f"read/{topic}", 0)
                for topic in {read.topic.name for read in self._read_nodes[job]}
            )
            share.late += counts.get(f"late/{job}", 0)
            share.future += counts.get(f"future/{job}", 0)
            if share.rows >= WARN_AFTER_ROWS and job not in self._warned:
                self._warn(job, share)

    def close(self) -> None:
        """Logs warnings that are due and were not logged yet."""
        for job, share in self._shares.items():
            if job not in self._warned:
                self._warn(job, share)

    def _warn(self, job: str, share: LateShare) -> None:
        if share.warning(job) is None:
            return
        self._warned.add(job)
        if share.late:
            with suppress(MillraceError), closing(open_log(self._settings, create=False)) as log:
                for read in self._read_nodes[job]:
                    _measure_lags(log, read, share)
        _log.warning("%s", share.warning(f"job {job}"))


def _find_read_nodes(job: Job) -> list[graph.Read]:
    """The nodes of a job that read, each topic and watermark once."""
    found = (route.edge.origin for route in Plan.of([job], slots=1).routes)
    return list(dict.fromkeys(read for read in found if isinstance(read, graph.Read)))


def _measure_lags(log: Log, read: graph.Read, share: LateShare) -> None:
    """Adds by how much the newest rows of a topic lag behind the clocks of their partitions."""
    begins = log.start_offsets(read.topic.name)
    for partition, end in log.end_offsets(read.topic.name).items():
        start = max(begins[partition], end - SAMPLE_RECORDS)
        if start < end:
            rows = decode(read.topic, partition, log.read(read.topic.name, partition, start, end)).rows
            lags, _ = lags_of_rows(rows, read.watermark.clock())
            share.add(0, None, lags)
