"""What a job's own code raises stops that job alone: what went wrong, and the rows that did it."""

from __future__ import annotations

import contextlib
import functools
import json
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from millrace.engine.exchange import Block
from millrace.errors import LogError, StateError
from millrace.log.dead_letters import DEAD_SCHEMA, MAX_REASON_CHARS, replace_surrogates
from millrace.values.calls import UserCodeExit, ordinary_errors
from millrace.values.columns import OFFSET, PARTITION, RECORD_KEY, RECORD_VALUE
from millrace.values.user_code import add_row, describe_failure

NOT_USER_ERRORS = (MemoryError, LogError, StateError)
"""What no job is to blame for: it stops the batch, which is tried again."""

SCHEMA_ERRORS = (
    pl.exceptions.ShapeError,
    pl.exceptions.SchemaError,
    pl.exceptions.ColumnNotFoundError,
    pl.exceptions.DuplicateError,
    pl.exceptions.StructFieldNotFoundError,
)
"""What polars raises where frames do not have the columns that they should have."""
_OWN_PATHS = (
    str(Path(__file__).parents[1]),
    str(Path(pl.__file__).parent),
    contextlib.__file__,
    functools.__file__,
)

MAX_ROWS = 20
"""How many offending rows are kept."""
MAX_TRIES = 200
"""How often code is run again to find them."""
MAX_TRACE_LENGTH = 50_000
"""How many characters of a traceback are kept, from its end."""


class RunningJobs:
    """The jobs whose code this process runs now; named when a run does not stop."""

    jobs: Sequence[str] = ()


RUNNING_JOBS = RunningJobs()


@dataclass(frozen=True)
class Failure:
    """A job that cannot go on, and the rows that stopped it, in the columns of a dead letter."""

    job: str
    reason: str
    rows: pl.DataFrame
    trace: str = ""
    """The traceback of the exception."""


def is_user_error(error: Exception) -> bool:
    """Whether a user's function had a part in it."""
    return any(
        not frame.f_code.co_filename.startswith(_OWN_PATHS)
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def failure_block(job: str, where: str, error: Exception, rows: pl.DataFrame) -> Block:
    """A failure on its way to the end of the query."""
    message = (
        str(error).strip().partition("\n")[0][:MAX_REASON_CHARS]
    )  # some errors quote all that they were given
    kind = "" if isinstance(error, UserCodeExit) else type(error).__name__
    reason = replace_surrogates(f"{': '.join(filter(None, [kind, message]))}{describe_failure(error, where)}")
    dead = rows.with_columns(pl.lit(reason).alias("reason")).select(
        pl.col(c).cast(t) for c, t in DEAD_SCHEMA.items()
    )
    trace = replace_surrogates("".join(traceback.format_exception(error))[-MAX_TRACE_LENGTH:])
    return Block.of(f"failed/{job}", reason, dead, channel=trace)


def parse_failure(block: Block) -> Failure:
    """The failure of `failed`."""
    return Failure(block.target.partition("/")[2], block.kind, block.frame, block.channel)


def find_culprits(
    run: Callable[[Sequence[pl.DataFrame]], object], frames: Sequence[pl.DataFrame], *, most: int = MAX_ROWS
) -> list[pl.DataFrame]:
    """Of frames with which `run` raises, the few rows with which it still does: found by halving. Those of
    one frame stay apart from another's.

    Where it takes several rows together, or the code does not do the same every time, the smallest part with
    which it raised stands for them.
    """
    found: list[list[pl.DataFrame]] = []
    waiting, tries = [list(frames)], 0
    while waiting and len(found) < most:
        part = waiting.pop()
        halves = _split_in_half(part)
        tries += len(halves)
        failing_halves = [half for half in halves if tries <= MAX_TRIES and _raises(run, half)]
        waiting += reversed(failing_halves)
        if not failing_halves:
            found.append([frame.head(MAX_ROWS) for frame in part])
    return [pl.concat(parts).head(MAX_ROWS) for parts in zip(*found, strict=True)]


def note_culprit(
    error: Exception, run: Callable[[Sequence[pl.DataFrame]], object], frames: Sequence[pl.DataFrame]
) -> None:
    """Notes a row with which `run` raised `error`, where jobs are not isolated and the caller gets it."""
    if any(frame.height for frame in frames):
        with contextlib.suppress(Exception):
            add_row(error, *find_culprits(run, frames, most=1))


def _split_in_half(frames: list[pl.DataFrame]) -> list[list[pl.DataFrame]]:
    """All rows in two parts; none if there is only one."""
    half = sum(frame.height for frame in frames) // 2
    if half == 0:
        return []
    first, second, remaining = [], [], half
    for frame in frames:
        first.append(frame.head(remaining))
        second.append(frame.slice(remaining) if remaining else frame)
        remaining = max(0, remaining - frame.height)
    return [first, second]


def _raises(run: Callable[[Sequence[pl.DataFrame]], object], frames: Sequence[pl.DataFrame]) -> bool:
    try:
        with ordinary_errors():
            run(frames)
    except NOT_USER_ERRORS:
        raise
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        return True
    return False


def to_dead_letters(rows: pl.DataFrame, topic: str | None) -> pl.DataFrame:
    """Rows as dead letters: the records they were where those are known, else their columns as JSON."""
    columns = [column for column in rows.columns if not column.startswith("_")]
    described = [json.dumps(row, default=str).encode() for row in rows.select(columns).iter_rows(named=True)]
    value = pl.Series("value", described, pl.Binary)
    known = rows.with_columns(value)
    if RECORD_VALUE in rows.columns:
        known = known.with_columns(pl.col(RECORD_VALUE).fill_null(pl.col("value")).alias("value"))
    origin_columns = {"key": RECORD_KEY} | (
        {} if topic is None else {"partition": PARTITION, "offset": OFFSET}
    )
    origins = {name: column for name, column in origin_columns.items() if column in rows.columns}
    return known.select(
        pl.lit(topic, pl.String).alias("topic"),
        *[
            (pl.col(origins[name]) if name in origins else pl.lit(None)).cast(DEAD_SCHEMA[name]).alias(name)
            for name in ("partition", "offset", "key")
        ],
        pl.lit(None, pl.Int64).alias("timestamp"),
        "value",
    )


NO_DEAD_LETTERS = pl.DataFrame(schema=DEAD_SCHEMA)
