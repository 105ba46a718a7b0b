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
from millrace.log.dead import DEAD, LONGEST_REASON, legible
from millrace.values.calls import Ended, ordinary_errors

NOT_THEIRS = (MemoryError, LogError, StateError)
"""What no job is to blame for: it stops the batch, which is tried again."""

STRUCTURAL = (
    pl.exceptions.ShapeError,
    pl.exceptions.SchemaError,
    pl.exceptions.ColumnNotFoundError,
    pl.exceptions.DuplicateError,
    pl.exceptions.StructFieldNotFoundError,
)
"""What polars raises where frames do not have the columns that they should have."""
_OURS = (
    str(Path(__file__).parents[1]),
    str(Path(pl.__file__).parent),
    contextlib.__file__,
    functools.__file__,
)

MOST = 20
"""How many offending rows are kept."""
TRIES = 200
"""How often code is run again to find them."""
LONGEST_TRACE = 50_000
"""How many characters of a traceback are kept, from its end."""


class AtWork:
    """Whose code this process runs now, for whoever asks why it does not stop."""

    jobs: Sequence[str] = ()


AT_WORK = AtWork()


@dataclass(frozen=True)
class Failure:
    """A job that cannot go on, and the rows that stopped it, in the columns of a dead letter."""

    job: str
    reason: str
    rows: pl.DataFrame
    trace: str = ""
    """The traceback of the exception."""


def is_of_a_user(error: Exception) -> bool:
    """Whether a user's function had a part in it."""
    return any(
        not frame.f_code.co_filename.startswith(_OURS) for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def failed(job: str, where: str, error: Exception, rows: pl.DataFrame) -> Block:
    """A failure on its way to the end of the query."""
    said = (
        str(error).strip().partition("\n")[0][:LONGEST_REASON]
    )  # some errors quote all that they were given
    notes = "; ".join([*getattr(error, "__notes__", []), where])
    kind = "" if isinstance(error, Ended) else type(error).__name__
    reason = legible(f"{': '.join(filter(None, [kind, said]))} ({notes})")
    dead = rows.with_columns(pl.lit(reason).alias("reason")).select(
        pl.col(c).cast(t) for c, t in DEAD.items()
    )
    trace = legible("".join(traceback.format_exception(error))[-LONGEST_TRACE:])
    return Block.of(f"failed/{job}", reason, dead, channel=trace)


def failure_of(block: Block) -> Failure:
    """The failure of `failed`."""
    return Failure(block.target.partition("/")[2], block.kind, block.frame, block.channel)


def culprits(
    run: Callable[[Sequence[pl.DataFrame]], object], frames: Sequence[pl.DataFrame]
) -> list[pl.DataFrame]:
    """Of frames with which `run` raises, the few rows with which it still does: found by halving. Those of one frame stay apart from another's.

    Where it takes several rows together, or the code does not do the same every time, the smallest part with which it raised stands for them.
    """
    found: list[list[pl.DataFrame]] = []
    waiting, tries = [list(frames)], 0
    while waiting and len(found) < MOST:
        part = waiting.pop()
        halves = _halves(part)
        tries += len(halves)
        bad = [half for half in halves if tries <= TRIES and _raises(run, half)]
        waiting += reversed(bad)
        if not bad:
            found.append([frame.head(MOST) for frame in part])
    return [pl.concat(parts).head(MOST) for parts in zip(*found, strict=True)]


def _halves(frames: list[pl.DataFrame]) -> list[list[pl.DataFrame]]:
    """All rows in two parts; none if there is only one."""
    half = sum(frame.height for frame in frames) // 2
    if half == 0:
        return []
    first, second, left = [], [], half
    for frame in frames:
        first.append(frame.head(left))
        second.append(frame.slice(left) if left else frame)
        left = max(0, left - frame.height)
    return [first, second]


def _raises(run: Callable[[Sequence[pl.DataFrame]], object], frames: Sequence[pl.DataFrame]) -> bool:
    try:
        with ordinary_errors():
            run(frames)
    except NOT_THEIRS:
        raise
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        return True
    return False


def letters(rows: pl.DataFrame, topic: str | None) -> pl.DataFrame:
    """Rows as dead letters: the records they were where those are known, else their columns as JSON."""
    columns = [column for column in rows.columns if not column.startswith("_")]
    described = [json.dumps(row, default=str).encode() for row in rows.select(columns).iter_rows(named=True)]
    value = pl.Series("value", described, pl.Binary)
    known = rows.with_columns(value)
    if "_value" in rows.columns:
        known = known.with_columns(pl.col("_value").fill_null(pl.col("value")).alias("value"))
    given = {"partition": "_part", "offset": "_off", "key": "_key"}
    return known.select(
        pl.lit(topic, pl.String).alias("topic"),
        *[
            (pl.col(c) if c in rows.columns else pl.lit(None)).cast(DEAD[name]).alias(name)
            for name, c in given.items()
        ],
        pl.lit(None, pl.Int64).alias("timestamp"),
        "value",
    )


NO_ROWS = pl.DataFrame(schema=DEAD)
