"""What a batch has to say goes to the log in one transaction with the batch's number: exactly once, however often the batch is run.

Jobs may ask for less: results that are appended before that, again when the batch is repeated (at least once), or not then (at most once). Where no job asks for
exactly once, there is no transaction and no number.
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
from millrace.engine.isolation import NOT_THEIRS, Failure, culprits, failed, failure_of, letters
from millrace.engine.plan import Plan
from millrace.engine.sink import Results
from millrace.errors import DefinitionError, LogUnreachable, StateMismatch
from millrace.log import Log, Outgoing, fault_points
from millrace.log.codecs.codec import encode
from millrace.log.dead import dead_letters, dead_topic, fit, late_letters, late_topic, without_large
from millrace.log.status import KEPT, HeldBack, Status, status_topic
from millrace.panes import Delivery
from millrace.runners.batch_clock import elapsed_time, wall_clock
from millrace.runners.state.folder import writing
from millrace.runners.state.quarantine import Quarantine
from millrace.topics import Topic
from millrace.values.calls import ordinary_errors

ANEW = "compute everything once more into a new version of the topics (millrace backfill), or begin with another state folder that writes behind the results that are there (--take-over)"
_log = logging.getLogger("millrace.run")
EXPIRE_EVERY = 60_000
"""How often, in milliseconds, records past their topic's retention are removed."""


class Committer:
    """The writer of one run's results. A second one of the same run and state fences the first."""

    def __init__(
        self, log: Log, plan: Plan, *, run: str, state: str, quarantine: Quarantine | None = None
    ) -> None:
        """Makes sure that the topics exist, and takes over. `state`: the id of the state folder that the run goes on from.

        `quarantine`: what to say of jobs that were stopped.
        """
        for topic in plan.outputs:
            log.ensure(topic)
        for job in plan.jobs:
            log.ensure_raw(late_topic(job.name))
            log.ensure_raw(dead_topic(job.name))
        for topic in plan.topics:
            log.ensure_raw(dead_topic(topic.name))
        log.ensure_raw(status_topic(run), retention=KEPT)
        self._plan = plan
        self._log = log
        self._run, self._name = run, f"{run}.{state}"
        self._quarantine = quarantine
        self._deliveries = _deliveries(plan)
        exact = any(job.delivery == "exactly_once" for job in plan.jobs)
        self._writer = log.writer(self._name) if exact else None
        self._repeated = -1
        """The batch that an earlier attempt had begun, and may have written."""
        self._loose: Path | None = None
        self._reads = {job.name: _reads(plan, job.name) for job in plan.jobs}
        self._writes = {job.name: [output.topic.name for output in job.outputs] for job in plan.jobs}
        self._since, self._began = _clock(), elapsed_time()
        self._expired = 0

    @property
    def last(self) -> int:
        """The last batch of which the log knows, -1 if none."""
        return -1 if self._writer is None else self._writer.last

    def check(self, state: Path, *, complete: int, planned: int) -> None:
        """Refuses a state that does not belong to the log: what it calls complete must be there, and nothing that it never planned.

        Runs that commit nothing leave a note in the folder: then the log need not know of their batches.
        """
        self._repeated, self._loose = (planned if planned > complete else -1), state / "uncommitted"
        if self._writer is None:
            with writing(state):
                self._loose.touch()
            return
        if complete > self.last and not self._loose.exists():
            raise StateMismatch(
                f"{state} has completed batch {complete}, but the log knows only of {self.last}, so results are missing from it; restore the log that belongs to this state, or {ANEW}"
            )
        if self.last > max(complete, planned):
            raise StateMismatch(
                f"the log has batch {self.last}, but {state} knows only of {max(complete, planned)}, so it is an older copy of the state that wrote it, and would skip or repeat results; restore the newest, or {ANEW}"
            )

    def encoded(self, results: Results) -> Results:
        """With outputs as records. A job whose results cannot be encoded fails, and not the run; where jobs share a topic, all that write it do."""
        records: dict[str, Outgoing] = {}
        failures = list(results.failures)
        for topic in self._plan.outputs:
            frame = results.outputs.get(topic.name)
            if frame is None or frame.is_empty():
                continue
            try:
                with ordinary_errors():
                    records[topic.name] = encode(topic, frame, ingestion_time=results.now)
            except NOT_THEIRS:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, these results cannot be written
                jobs = [job for job, topics in self._writes.items() if topic.name in topics]
                failures += self._unencodable(jobs, topic, frame, error, results.now)
        return replace(results, encoded=records, failures=failures)

    def _unencodable(
        self, jobs: list[str], topic: Topic, frame: pl.DataFrame, error: Exception, now: int
    ) -> list[Failure]:
        [bad] = culprits(lambda parts: encode(topic, parts[0], ingestion_time=now), [frame])
        rows = letters(bad, None)
        running = [job for job in jobs if self._quarantine is None or job not in self._quarantine.cases]
        return [failure_of(failed(job, f"writing {topic.name}", error, rows)) for job in running]

    def commit(self, batch: int, results: Results, now: int | None = None) -> bool:
        """Results, late rows, dead letters, the run's status and the batch's number, all or nothing, as far as jobs ask for that. False: an earlier attempt had already done it.

        `now`: the append time, by default the clock's.
        """
        if batch <= self.last:
            return False
        at = _clock() if now is None else now
        outgoing = dict(self._outgoing(batch, results))
        outgoing[status_topic(self._run)] = self._status(batch, results, at).outgoing()
        exact: dict[str, Outgoing] = {}
        for name, records in outgoing.items():
            if self._writer is not None and self._delivery(name) == "exactly_once":
                exact[name] = records
            elif self._delivery(name) != "at_most_once" or batch != self._repeated:
                self._log.append(name, records, now=at)
        fault_points.at("delivered")
        if self._writer is not None:
            self._writer.commit(batch, exact, now=at)
            if self._loose is not None:
                self._loose.unlink(missing_ok=True)
        self._expire(at)
        return True

    def check_left(self) -> None:
        """`JobQuarantined` where no job is left to run; their dead letters and a status record are in the log then, once.

        No batch brings these letters: if the log had the number of the batch in which they failed, their results of it would be taken for written.
        """
        quarantine = self._quarantine
        if quarantine is None or not quarantine.stops_all(self._plan):
            return
        with closing(self._log.writer(f"{self._name}.letters")) as writer:
            quarantine.number(writer.last + 1, last=self.last)
            fault_points.at("quarantined")
            for marker, dead in quarantine.numbered(after=writer.last).items():
                at = _clock()
                status = self._status(self.last + 1, Results({}, {}, None, {}, {}, at), at).outgoing()
                letters = {
                    topic: fit(dead_letters(frame), self._log.largest(topic)) for topic, frame in dead.items()
                }
                writer.commit(marker, {**letters, status_topic(self._run): status}, now=at)
        raise quarantine.error()

    def _delivery(self, topic: str) -> Delivery:
        """That of the job whose topic it is; what concerns all jobs is committed with the batch."""
        return self._deliveries.get(topic, "exactly_once")

    def _expire(self, now: int) -> None:
        """Retention is kept by whoever writes results, now and then; by append times, and no faster than time passes, whatever the clock says."""
        passed = elapsed_time() - self._began
        now = min(now, self._since + passed)
        if now - self._expired >= EXPIRE_EVERY:
            self._expired = now
            try:
                self._log.expire(now, passed=passed)
            except (
                LogUnreachable
            ) as error:  # housekeeping must not end a run; the next batch waits for the brokers it needs
                _log.warning("records past their retention were not removed: %s", error)

    def close(self) -> None:
        """Lets go of the log."""
        if self._writer is not None:
            self._writer.close()

    def _outgoing(self, batch: int, results: Results) -> Iterator[tuple[str, Outgoing]]:
        topics = {topic.name: topic for topic in self._plan.outputs}
        dead = {} if self._quarantine is None else self._quarantine.dead(batch)
        for name, frame in results.outputs.items():
            if not frame.is_empty():
                known = results.encoded.get(name)
                encoded = encode(topics[name], frame, ingestion_time=results.now) if known is None else known
                records, large = without_large(name, encoded, self._log.largest(name))
                yield name, records
                if large is not None:
                    _add(
                        dead,
                        dead_topic(next(job for job, written in self._writes.items() if name in written)),
                        large,
                    )
        for job, frame in results.late.items():
            yield late_topic(job), fit(late_records(frame), self._log.largest(late_topic(job)))
        if results.dead is not None:
            for (topic,), frame in results.dead.partition_by("topic", as_dict=True).items():
                _add(dead, dead_topic(str(topic)), frame)
        for name, frame in dead.items():
            yield name, fit(dead_letters(frame), self._log.largest(name))

    def _status(self, batch: int, results: Results, at: int) -> Status:
        counts = results.counts
        upto = {topic.name: counts.get(f"upto/{topic.name}") for topic in self._plan.topics}
        on_time = {name: _newest_on_time(frame) for name, frame in results.outputs.items()}
        return Status(
            at=at,
            batch=batch,
            jobs=[job.name for job in self._plan.jobs],
            read=counts.get("read", 0),
            results={topic.name: len(results.outputs.get(topic.name, ())) for topic in self._plan.outputs},
            watermarks=results.watermarks,
            lag={
                name: sum(self._log.ends(name).values()) - reached
                for name, reached in upto.items()
                if reached is not None
            },
            reached={name: reached for name, reached in upto.items() if reached is not None},
            took_ms=at - results.now if self._since <= results.now <= at else None,
            latency={name: at - end for name, end in on_time.items() if end is not None},
            reads=self._reads,
            writes=self._writes,
            quarantined={} if self._quarantine is None else self._quarantine.reasons,
            lookups=_lookups(counts),
            holds={
                operator: HeldBack(held.topic, held.partition, held.behind)
                for operator, held in results.holds.items()
            },
        )


def _deliveries(plan: Plan) -> dict[str, Delivery]:
    """How the topics of jobs are delivered; refuses one that two jobs want differently."""
    said: dict[str, tuple[str, Delivery]] = {}
    for job in plan.jobs:
        for topic in (
            *(output.topic.name for output in job.outputs),
            late_topic(job.name),
            dead_topic(job.name),
        ):
            other, delivery = said.setdefault(topic, (job.name, job.delivery))
            if delivery != job.delivery:
                raise DefinitionError(
                    f"topic {topic!r} is written by {other}, delivery={delivery!r}, and by {job.name}, delivery={job.delivery!r}; a topic holds what the weakest of them says, so let both say the same, or write to two topics"
                )
    return {topic: delivery for topic, (_, delivery) in said.items()}


def _add(dead: dict[str, pl.DataFrame], name: str, frame: pl.DataFrame) -> None:
    dead[name] = pl.concat([dead[name], frame]) if name in dead else frame


def _clock() -> int:
    return wall_clock()


def _reads(plan: Plan, job: str) -> list[str]:
    reads = (route.edge.origin for route in plan.routes if job in route.jobs)
    return list(dict.fromkeys(read.topic.name for read in reads if isinstance(read, graph.Read)))


def _lookups(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """The counts of lookups, by their names."""
    told: dict[str, dict[str, int]] = {}
    for name, count in counts.items():
        if name.startswith("lookup/"):
            lookup, _, what = name.removeprefix("lookup/").rpartition("/")
            told.setdefault(lookup, {})[what] = count
    return told


def _newest_on_time(frame: pl.DataFrame) -> int | None:
    """The end of the newest window of which a batch brings the on-time pane."""
    if "timing" not in frame.columns:
        return None
    newest: int | None = frame.filter(pl.col("timing") == "on_time")["window_end"].max()  # type: ignore[assignment] # whole milliseconds
    return newest


def late_records(frame: pl.DataFrame) -> Outgoing:
    """Refused rows as the records they were, with the reason and their origin in headers.

    Where the record is not at hand (rows that turned out late although no clock said they could), its known columns stand as JSON.
    """
    known = [c for c in frame.columns if not c.startswith("_") and c not in ("reason", "missed")]
    values = [
        json.dumps(row, default=str).encode() if value is None else value
        for value, row in zip(frame["_value"], frame.select(known).iter_rows(named=True), strict=True)
    ]
    return late_letters(
        Outgoing(pa.array(values, pa.binary()), pa.array(frame["_key"].to_list(), pa.binary())), frame
    )
