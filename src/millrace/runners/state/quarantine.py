"""Jobs that were stopped by their own code. The state folder keeps them until they are tried again
(`--retry JOB`).

The batch in which a job fails is taken back as a whole and run again without that job. So its state stays as
it was after the last good batch, and nothing of it is half committed; the jobs beside it miss nothing. Its
dead letters are committed with that batch. Where no job is left, no batch is run: then the letters are
committed alone, under a writer of their own, and the job misses nothing when it is tried again.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import polars as pl

from millrace.engine.exchange import decode_frame, encode_frame
from millrace.engine.isolation import Failure
from millrace.engine.plan import Plan
from millrace.errors import DefinitionError, JobQuarantined, StateUnreadable
from millrace.log.dead_letters import DEAD_SCHEMA, dead_topic
from millrace.runners.state.folder import decode_checked, encode_checked
from millrace.values.atomic_files import write_file

_log = logging.getLogger("millrace.run")


@dataclass(frozen=True)
class Case:
    """One job in quarantine."""

    batch: int
    """The batch that it could not take, and with which its dead letters are committed."""
    at: int
    """The clock of that batch."""
    reason: str
    letters: str
    """The offending rows, as Arrow bytes in base64."""
    trace: str = ""
    """The file that holds the traceback."""
    marker: int | None = None
    """The number under which the letters are committed alone; None: they are committed with the batch."""

    @property
    def rows(self) -> pl.DataFrame:
        """The offending rows, in the columns of a dead letter."""
        return decode_frame(base64.b64decode(self.letters)).cast(DEAD_SCHEMA)


class Quarantine:
    """The cases of one state folder."""

    def __init__(self, folder: Path) -> None:
        """Reads the cases of earlier runs."""
        self._path = folder / "quarantine.json"
        self.released: frozenset[str] = frozenset()
        """The jobs that are tried again."""
        try:
            stored = decode_checked(self._path.read_bytes())["jobs"]
            self.cases: Mapping[str, Case] = {job: Case(**case) for job, case in stored.items()}
        except FileNotFoundError:
            self.cases = {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateUnreadable(
                f"{self._path} is damaged ({error}), so it cannot be told which jobs are under quarantine; "
                "restore it from a backup, or remove it to try all jobs again"
            ) from error

    def release(self, jobs: Sequence[str], known: Iterable[str]) -> None:
        """These jobs are to be tried again."""
        if unknown := sorted(set(jobs) - set(known)):
            raise DefinitionError(
                f"retry {', '.join(unknown)}: there is no such job in this run; it has {', '.join(known)}"
            )
        self.released = frozenset(jobs) & self.cases.keys()
        if self.released:
            for job in jobs:
                self._trace_path(job).unlink(missing_ok=True)
            self._write({job: case for job, case in self.cases.items() if job not in jobs})

    def commit_failures(self, batch: int, now: int, failures: Sequence[Failure]) -> None:
        """Puts jobs under quarantine; on disk when it returns,
        so that the batch is not tried with them again.
        """
        new: dict[str, Case] = {}
        for failure in failures:
            rows = [new[failure.job].rows] if failure.job in new else []
            reason = new[failure.job].reason if failure.job in new else failure.reason
            letters = pl.concat(
                [*rows, failure.rows if failure.rows.height else _letter_without_row(failure.reason)]
            )
            new[failure.job] = Case(
                batch,
                now,
                reason,
                base64.b64encode(encode_frame(letters)).decode(),
                self._write_trace(failure),
            )
        self._write({**self.cases, **new})
        for job, case in new.items():
            _log.error("%s", describe(job, case))

    def pause_jobs(self, plan: Plan) -> Plan:
        """The plan without the jobs under quarantine; it may have none left."""
        return replace(plan, isolates_jobs=True, paused=frozenset(self.cases))

    def stops_all(self, plan: Plan) -> bool:
        """Whether no job is left."""
        return all(job.name in self.cases for job in plan.jobs)

    def dead_rows(self, batch: int) -> dict[str, pl.DataFrame]:
        """The offending rows of the jobs that failed in `batch`, by topic."""
        return {
            dead_topic(job): case.rows
            for job, case in self.cases.items()
            if case.batch == batch and case.marker is None
        }

    def number_letters(self, marker: int, *, last: int) -> bool:
        """Gives letters that no batch up to `last` brought, and none will, a number of their own; whether
        there are any. On disk when it returns.
        """
        waiting = {job: case for job, case in self.cases.items() if case.batch > last and case.marker is None}
        if waiting:
            self._write(
                {**self.cases, **{job: replace(case, marker=marker) for job, case in waiting.items()}}
            )
        return bool(waiting)

    def numbered_letters(self, *, after: int) -> dict[int, dict[str, pl.DataFrame]]:
        """Letters that are committed alone and have a later number than `after`: rows by topic, by number."""
        found: dict[int, dict[str, pl.DataFrame]] = {}
        for job, case in self.cases.items():
            if case.marker is not None and case.marker > after:
                found.setdefault(case.marker, {})[dead_topic(job)] = case.rows
        return dict(sorted(found.items()))

    @property
    def reasons(self) -> dict[str, str]:
        """Why each job was stopped."""
        return {job: case.reason for job, case in self.cases.items()}

    def check(self) -> None:
        """Raises `JobQuarantined` if there is any."""
        if self.cases:
            raise self.to_error()

    def to_error(self) -> JobQuarantined:
        """One error for all cases, caused by what they raised."""
        error = JobQuarantined(". ".join(describe(job, case) for job, case in self.cases.items()))
        traces = [_read_trace(case) for case in self.cases.values()]
        error.__cause__ = _Raised("\n\n".join(filter(None, traces))) if any(traces) else None
        return error

    def _trace_path(self, job: str) -> Path:
        return self._path.with_name(f"quarantine-{job}.txt")

    def _write_trace(self, failure: Failure) -> str:
        """The file of a failure's traceback; none where it cannot be written,
        as the quarantine matters more.
        """
        path = self._trace_path(failure.job)
        try:
            path.write_text(failure.trace, errors="replace")
        except OSError as error:
            _log.warning(
                "the traceback of job %s cannot be kept in %s (%s):\n%s",
                failure.job,
                path,
                error.strerror,
                failure.trace,
            )
            return ""
        return str(path)

    def _write(self, cases: Mapping[str, Case]) -> None:
        stored = {"jobs": {job: asdict(case) for job, case in cases.items()}}
        write_file(self._path, encode_checked(stored), durable=True)
        self.cases = cases


class _Raised(Exception):
    """The traceback of a user's code as it was stored, so that a traceback of `JobQuarantined` shows it."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


def _read_trace(case: Case) -> str:
    try:
        return Path(case.trace).read_text(errors="replace") if case.trace else ""
    except OSError:
        return ""


@contextmanager
def open_quarantine(folder: Path, plan: Plan, retry: Sequence[str] = ()) -> Iterator[Quarantine]:
    """The quarantine of a state folder that is held, without the jobs that are to be tried again."""
    quarantine = Quarantine(folder)
    quarantine.release(retry, [job.name for job in plan.jobs])
    for job, case in quarantine.cases.items():
        _log.warning("%s", describe(job, case))
    yield quarantine


def describe(job: str, case: Case) -> str:
    """A case in a sentence, with what to do."""
    trace = f"its traceback is in {case.trace}, " if case.trace else ""
    return (
        f"job {job} was stopped by its own code in batch {case.batch}: {case.reason}; {trace}the offending "
        f"rows are in {dead_topic(job)}, its state is that before the batch, and jobs beside it go on. Mend "
        f"it and run again with --retry {job}"
    )


def _letter_without_row(reason: str) -> pl.DataFrame:
    """A letter that says why, where no row is to blame:
    an answer that could not be read off what was kept.
    """
    return pl.DataFrame({"value": [b""], "reason": [reason]}, schema_overrides={"value": pl.Binary}).select(
        pl.col(name) if name in ("value", "reason") else pl.lit(None, dtype).alias(name)
        for name, dtype in DEAD_SCHEMA.items()
    )
