"""What a batch has to say goes to the log in one transaction with the batch's number: exactly once, however often the batch is run."""

from __future__ import annotations

import json
from collections.abc import Iterator

import polars as pl
import pyarrow as pa

from millrace.engine.plan import Plan
from millrace.engine.sink import Results
from millrace.log import Log, Outgoing
from millrace.log.codecs import encode
from millrace.log.dead import dead_letters, dead_topic, late_letters, late_topic

EXPIRE_EVERY = 60_000
"""How often, in milliseconds, records past their topic's retention are removed."""


class Committer:
    """The writer of one run's results. A second one of the same name fences the first."""

    def __init__(self, log: Log, plan: Plan, name: str) -> None:
        """Makes sure that the topics exist, and takes over."""
        for topic in plan.outputs:
            log.ensure(topic)
        for job in plan.jobs:
            log.ensure_raw(late_topic(job.name))
        for topic in plan.topics:
            log.ensure_raw(dead_topic(topic.name))
        self._plan = plan
        self._log = log
        self._writer = log.writer(name)
        self._expired = 0

    @property
    def last(self) -> int:
        """The last batch whose results are in the log, -1 if none."""
        return self._writer.last

    def commit(self, batch: int, results: Results, now: int | None = None) -> bool:
        """Results, late rows, dead letters and the batch's number, all or nothing. False: an earlier attempt had already done it.

        `now`: the append time, by default the clock's.
        """
        if batch <= self.last:
            return False
        self._writer.commit(batch, dict(self._outgoing(results)), now=now)
        self._expire(results.now)
        return True

    def _expire(self, now: int) -> None:
        """Retention is kept by whoever writes results, now and then."""
        if now - self._expired >= EXPIRE_EVERY:
            self._expired = now
            self._log.expire(now)

    def close(self) -> None:
        """Lets go of the log."""
        self._writer.close()

    def _outgoing(self, results: Results) -> Iterator[tuple[str, Outgoing]]:
        topics = {topic.name: topic for topic in self._plan.outputs}
        for name, frame in results.outputs.items():
            if not frame.is_empty():
                yield name, encode(topics[name], frame, ingestion_time=results.now)
        for job, frame in results.late.items():
            yield late_topic(job), late_records(frame)
        if results.dead is not None:
            for (topic,), frame in results.dead.partition_by("topic", as_dict=True).items():
                yield dead_topic(str(topic)), dead_letters(frame)


def late_records(frame: pl.DataFrame) -> Outgoing:
    """Refused rows as the records they were, with the reason and their origin in headers.

    Where the record is not at hand (rows that turned out late although no clock said they could), its known columns stand as JSON.
    """
    known = [c for c in frame.columns if not c.startswith("_") and c not in ("reason", "missed")]
    values = [
        json.dumps(row, default=str).encode() if value is None else value
        for value, row in zip(frame["_value"], frame.select(known).iter_rows(named=True), strict=True)
    ]
    return late_letters(Outgoing(pa.array(values, pa.binary()), pa.array(frame["_key"].to_list(), pa.binary())), frame)
