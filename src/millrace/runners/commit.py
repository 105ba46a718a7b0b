"""Commits the results of each batch exactly once, however often the batch runs.

Results, late rows, dead letters and status go to the log in one transaction, together with a marker: the
number of the batch. So the log holds the results of batch n if and only if its marker is n or more. A batch
may run any number of times; the first commit counts.

Example: a run is killed after one of the steps of batch 7.

    last step that was done            marker    what the next start does
    range and clock are planned        6         runs batch 7 over the same range, and commits it
    results are computed               6         the same
    results are committed              7         runs batch 7 again for its state, and writes nothing
    state is stored                    7         runs batch 8

Takeover: a new writer fences the old one before it reads the marker. Fenced, the old one can commit nothing,
so the marker cannot move between the new writer's read and its first commit.

    process A    is frozen just before it commits batch 7
    process B    opens the writer of the same run and state: A is fenced
    process B    reads marker 6, runs batch 7 and commits it: marker 7
    process A    wakes up and commits batch 7: the log refuses it, and A ends

Jobs may ask for less. Their results are appended before the transaction: again when the batch is repeated (at
least once), or not then (at most once). Where no job asks for exactly once, there is no transaction and no
marker.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa

from millrace import graph
from millrace.engine.isolation import (
    NOT_USER_ERRORS,
    Failure,
    failure_block,
    find_culprits,
    parse_failure,
    to_dead_letters,
)
from millrace.engine.output_watermarks import OutputWatermarks
from millrace.engine.plan import Plan
from millrace.engine.sink import Results
from millrace.errors import DefinitionError, LogUnreachable, StateMismatch
from millrace.log import Log, OutgoingRecords, fault_points
from millrace.log.codecs.codec import encode
from millrace.log.dead_letters import (
    dead_letters,
    dead_topic,
    late_letters,
    late_topic,
    split_oversized,
    truncate_letters,
)
from millrace.log.status import STATUS_RETENTION, LaggingPartition, Status, status_topic
from millrace.panes import Delivery
from millrace.runners.batch_clock import elapsed_time, wall_clock
from millrace.runners.state.folder import explain_write_errors
from millrace.runners.state.quarantine import Quarantine
from millrace.topics import Topic
from millrace.values.calls import ordinary_errors
from millrace.values.columns import RECORD_KEY, RECORD_VALUE
from millrace.values.user_code import add_row

RECOMPUTE_REMEDY = (
    "compute everything once more into a new version of the topics (millrace backfill), or begin with "
    "another state folder that writes behind the results that are there (--take-over)"
)
_log = logging.getLogger("millrace.run")
EXPIRE_EVERY_MS = 60_000
"""How often, in milliseconds, records past their topic's retention are removed."""


class Committer:
    """Commits the batches of one run. A second committer of the same run and state fences the first."""

    def __init__(
        self, log: Log, plan: Plan, *, run: str, state: str, quarantine: Quarantine | None = None
    ) -> None:
        """Creates topics that do not exist, and fences the previous writer.
        `state`: the id of the run's state.
        """
        for topic in plan.outputs:
            log.ensure(topic)
        for job in plan.jobs:
            log.ensure_raw(late_topic(job.name))
            log.ensure_raw(dead_topic(job.name))
        for topic in plan.topics:
            log.ensure_raw(dead_topic(topic.name))
        log.ensure_raw(status_topic(run), retention=STATUS_RETENTION)
        self._plan = plan
        self._log = log
        self._run, self._writer_name = run, f"{run}.{state}"
        self._quarantine = quarantine
        self._deliveries = _resolve_deliveries(plan)
        exact = any(job.delivery == "exactly_once" for job in plan.jobs)
        self._writer = log.writer(self._writer_name) if exact else None
        self._output_watermarks = OutputWatermarks(plan)
        self._committed_watermarks: dict[str, int] = {}
        self._repeated_batch = -1
        """The batch that an earlier attempt had begun, and may have written."""
        self._uncommitted_note: Path | None = None
        self._input_topics = {job.name: _topics_read_by(plan, job.name) for job in plan.jobs}
        self._output_topics = {job.name: [output.topic.name for output in job.outputs] for job in plan.jobs}
        self._started_at, self._started_elapsed = _clock(), elapsed_time()
        self._last_expiry = 0

    @property
    def last_batch(self) -> int:
        """The marker: the last batch that the log holds, -1 if none."""
        return -1 if self._writer is None else self._writer.last_marker

    def check_state(self, state: Path, *, complete: int, planned: int) -> None:
        """Refuses a state that does not belong to the log. The log must hold all batches that are `complete`,
        and none after `planned`.

        A run without exactly-once jobs sets no markers; a note in the state folder says so.
        """
        self._repeated_batch, self._uncommitted_note = (
            (planned if planned > complete else -1),
            state / "uncommitted",
        )
        if self._writer is None:
            with explain_write_errors(state):
                self._uncommitted_note.touch()
            return
        if complete > self.last_batch and not self._uncommitted_note.exists():
            raise StateMismatch(
                f"{state} has completed batch {complete}, but the log knows only of {self.last_batch}, so "
                "results are missing from it; restore the log that belongs to this state, or "
                f"{RECOMPUTE_REMEDY}"
            )
        if self.last_batch > max(complete, planned):
            raise StateMismatch(
                f"the log has batch {self.last_batch}, but {state} knows only of {max(complete, planned)}, "
                "so it is an older copy of the state that wrote it, and would skip or repeat results; "
                f"restore the newest, or {RECOMPUTE_REMEDY}"
            )

    def encode_outputs(self, results: Results) -> Results:
        """Encodes the outputs. Where results of a topic cannot be encoded,
        the jobs that write it fail, and the run goes on.
        """
        records: dict[str, OutgoingRecords] = {}
        failures = list(results.failures)
        for topic in self._plan.outputs:
            frame = results.outputs.get(topic.name)
            if frame is None or frame.is_empty():
                continue
            try:
                with ordinary_errors():
                    records[topic.name] = encode(topic, frame, ingestion_time=results.now)
            except NOT_USER_ERRORS:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, these results cannot be written
                jobs = [job for job, topics in self._output_topics.items() if topic.name in topics]
                failures += self._fail_unencodable(jobs, topic, frame, error, results.now)
        return replace(results, encoded=records, failures=failures)

    def _fail_unencodable(
        self, jobs: list[str], topic: Topic, frame: pl.DataFrame, error: Exception, now: int
    ) -> list[Failure]:
        [offending] = find_culprits(lambda parts: encode(topic, parts[0], ingestion_time=now), [frame])
        add_row(error, offending)
        rows = to_dead_letters(offending, None)
        running = [job for job in jobs if self._quarantine is None or job not in self._quarantine.cases]
        return [parse_failure(failure_block(job, f"writing {topic.name}", error, rows)) for job in running]

    def commit(self, batch: int, results: Results, now: int | None = None) -> bool:
        """Writes a batch and its marker in one transaction; returns False where an earlier attempt has done
        so.

        `now`: the append time, by default the wall clock's.
        """
        if batch <= self.last_batch:
            return False
        append_time = _clock() if now is None else now
        outgoing = dict(self._collect_records(batch, results))
        outgoing[status_topic(self._run)] = self._build_status(batch, results, append_time).to_records()
        transactional: dict[str, OutgoingRecords] = {}
        for name, records in outgoing.items():
            if self._writer is not None and self._delivery_of(name) == "exactly_once":
                transactional[name] = records
            elif self._delivery_of(name) != "at_most_once" or batch != self._repeated_batch:
                self._log.append(name, records, now=append_time)
        fault_points.at("delivered")
        if self._writer is not None:
            watermarks = self._moved_watermarks(results)
            self._writer.commit(batch, transactional, now=append_time, watermarks=watermarks)
            self._committed_watermarks |= watermarks
            if self._uncommitted_note is not None:
                self._uncommitted_note.unlink(missing_ok=True)
        self._expire(append_time)
        return True

    def _moved_watermarks(self, results: Results) -> dict[str, int]:
        """How far the run vouches for topics, where that is not what it committed last."""
        paused = () if self._quarantine is None else self._quarantine.cases
        return {
            topic: watermark
            for topic, watermark in self._output_watermarks.update(results, paused).items()
            if self._delivery_of(topic) == "exactly_once"
            and self._committed_watermarks.get(topic) != watermark
        }

    def check_all_quarantined(self) -> None:
        """Raises `JobQuarantined` where all jobs are under quarantine, after their dead letters and a status
        record were committed once.

        A second writer with markers of its own commits these letters. Under the number of the batch in which
        the jobs failed, the marker would say that the results of that batch were written.
        """
        quarantine = self._quarantine
        if quarantine is None or not quarantine.stops_all(self._plan):
            return
        with closing(self._log.writer(f"{self._writer_name}.letters")) as writer:
            quarantine.number_letters(writer.last_marker + 1, last=self.last_batch)
            fault_points.at("quarantined")
            for marker, dead in quarantine.numbered_letters(after=writer.last_marker).items():
                append_time = _clock()
                status = self._build_status(
                    self.last_batch + 1, Results({}, {}, None, {}, {}, append_time), append_time
                ).to_records()
                letter_records = {
                    topic: truncate_letters(dead_letters(frame), self._log.max_record_bytes(topic))
                    for topic, frame in dead.items()
                }
                writer.commit(marker, {**letter_records, status_topic(self._run): status}, now=append_time)
        raise quarantine.to_error()

    def _delivery_of(self, topic: str) -> Delivery:
        """The delivery of the job that writes the topic.
        Topics of the run, such as its status, are committed with the batch.
        """
        return self._deliveries.get(topic, "exactly_once")

    def _expire(self, now: int) -> None:
        """Removes records past their retention, once a minute.
        Time goes no faster here than it passes, so that a clock that jumps removes nothing.
        """
        elapsed = elapsed_time() - self._started_elapsed
        now = min(now, self._started_at + elapsed)
        if now - self._last_expiry >= EXPIRE_EVERY_MS:
            self._last_expiry = now
            try:
                self._log.expire(now, elapsed=elapsed)
            except LogUnreachable as error:  # the next batch waits for the brokers; housekeeping need not
                _log.warning("records past their retention were not removed: %s", error)

    def close(self) -> None:
        """Closes the writer."""
        if self._writer is not None:
            self._writer.close()

    def _collect_records(self, batch: int, results: Results) -> Iterator[tuple[str, OutgoingRecords]]:
        topics = {topic.name: topic for topic in self._plan.outputs}
        dead = {} if self._quarantine is None else self._quarantine.dead_rows(batch)
        for name, frame in results.outputs.items():
            if not frame.is_empty():
                known = results.encoded.get(name)
                encoded = encode(topics[name], frame, ingestion_time=results.now) if known is None else known
                records, large = split_oversized(name, encoded, self._log.max_record_bytes(name))
                yield name, records
                if large is not None:
                    _append_rows(
                        dead,
                        dead_topic(
                            next(job for job, job_topics in self._output_topics.items() if name in job_topics)
                        ),
                        large,
                    )
        for job, frame in results.late.items():
            yield (
                late_topic(job),
                truncate_letters(encode_late_rows(frame), self._log.max_record_bytes(late_topic(job))),
            )
        if results.dead is not None:
            for (topic,), frame in results.dead.partition_by("topic", as_dict=True).items():
                _append_rows(dead, dead_topic(str(topic)), frame)
        for name, frame in dead.items():
            yield name, truncate_letters(dead_letters(frame), self._log.max_record_bytes(name))

    def _build_status(self, batch: int, results: Results, append_time: int) -> Status:
        counts = results.counts
        read_counts = {topic.name: counts.get(f"upto/{topic.name}") for topic in self._plan.topics}
        on_time = {name: _newest_on_time_end(frame) for name, frame in results.outputs.items()}
        return Status(
            at=append_time,
            batch=batch,
            jobs=[job.name for job in self._plan.jobs],
            read=counts.get("read", 0),
            results={topic.name: len(results.outputs.get(topic.name, ())) for topic in self._plan.outputs},
            watermarks=results.watermarks,
            lag={
                name: sum(self._log.end_offsets(name).values()) - reached
                for name, reached in read_counts.items()
                if reached is not None
            },
            reached={name: reached for name, reached in read_counts.items() if reached is not None},
            took_ms=append_time - results.now if self._started_at <= results.now <= append_time else None,
            latency={name: append_time - end for name, end in on_time.items() if end is not None},
            reads=self._input_topics,
            writes=self._output_topics,
            quarantined={} if self._quarantine is None else self._quarantine.reasons,
            lookups=_group_lookup_counts(counts),
            holds={
                operator: LaggingPartition(hold.topic, hold.partition, hold.behind)
                for operator, hold in results.holds.items()
            },
            ended=sorted(results.ended),
        )


def _resolve_deliveries(plan: Plan) -> dict[str, Delivery]:
    """The delivery of each output topic; refuses a topic that two jobs deliver differently."""
    deliveries: dict[str, tuple[str, Delivery]] = {}
    for job in plan.jobs:
        for topic in (
            *(output.topic.name for output in job.outputs),
            late_topic(job.name),
            dead_topic(job.name),
        ):
            first_job, delivery = deliveries.setdefault(topic, (job.name, job.delivery))
            if delivery != job.delivery:
                raise DefinitionError(
                    f"topic {topic!r} is written by {first_job}, delivery={delivery!r}, and by {job.name}, "
                    f"delivery={job.delivery!r}; a reader of the topic could rely on the weaker one only, "
                    "so set the same delivery in both, or write to two topics"
                )
    return {topic: delivery for topic, (_, delivery) in deliveries.items()}


def _append_rows(dead: dict[str, pl.DataFrame], name: str, frame: pl.DataFrame) -> None:
    dead[name] = pl.concat([dead[name], frame]) if name in dead else frame


def _clock() -> int:
    return wall_clock()


def _topics_read_by(plan: Plan, job: str) -> list[str]:
    reads = (route.edge.origin for route in plan.routes if job in route.jobs)
    return list(dict.fromkeys(read.topic.name for read in reads if isinstance(read, graph.Read)))


def _group_lookup_counts(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Counts such as `lookup/NAME/failed`, by name and count."""
    by_lookup: dict[str, dict[str, int]] = {}
    for name, count in counts.items():
        if name.startswith("lookup/"):
            lookup, _, count_name = name.removeprefix("lookup/").rpartition("/")
            by_lookup.setdefault(lookup, {})[count_name] = count
    return by_lookup


def _newest_on_time_end(frame: pl.DataFrame) -> int | None:
    """The end of the newest window with an on-time pane in this frame."""
    if "timing" not in frame.columns:
        return None
    newest: int | None = frame.filter(pl.col("timing") == "on_time")["window_end"].max()  # type: ignore[assignment] # whole milliseconds
    return newest


def encode_late_rows(frame: pl.DataFrame) -> OutgoingRecords:
    """Late rows as the records that brought them, with the reason and their origin in headers.

    Records are only kept for rows that may be late by the clocks of their partitions. For any other late row
    its columns are written as JSON.
    """
    known = [c for c in frame.columns if not c.startswith("_") and c not in ("reason", "missed")]
    values = [
        json.dumps(row, default=str).encode() if value is None else value
        for value, row in zip(frame[RECORD_VALUE], frame.select(known).iter_rows(named=True), strict=True)
    ]
    return late_letters(
        OutgoingRecords(pa.array(values, pa.binary()), pa.array(frame[RECORD_KEY].to_list(), pa.binary())),
        frame,
    )
