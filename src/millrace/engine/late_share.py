"""How many rows of a run were late, and which delay of the watermark would have taken nearly all of them.

A run adds each batch: how many rows it read, the rows that it refused, and by how much rows lag behind the
clock of their partition. Lags come from the rows themselves (`lags_of_rows`), or, where only the refused rows
are at hand, from the watermarks after the batch (`lags_of_refused`, an upper bound).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from millrace import durations
from millrace.values.columns import ROW_COUNT, WATERMARK

THRESHOLD = 0.03
"""A run that refuses a larger share of its rows says so."""
COVERED = 0.99
"""The share of the measured rows that the proposed delay takes."""


@dataclass
class LateShare:
    """What a run has read and refused so far."""

    rows: int = 0
    late: int = 0
    """Rows behind the watermark, or in a window that was closed."""
    future: int = 0
    """Rows set aside because their time lies too far after their ingestion."""
    lags: Counter[int] = field(default_factory=Counter)
    """How many rows lag by how much, rounded up to two digits; so the number of entries is bounded."""

    def add(self, rows: int, refused: pl.DataFrame | None, lags: pl.Series | None) -> None:
        """Adds one batch: the number of rows read, the rows refused (as in `Results.late`),
        and lags in milliseconds.
        """
        self.rows += rows
        if refused is not None and len(refused):
            is_future = pl.col("reason") == "future"
            self.future += _count(refused.filter(is_future))
            self.late += _count(refused.filter(~is_future))
        if lags is not None and len(lags):
            binned = lags.cast(pl.Int64).rename("lag").to_frame().select(_round_up(pl.col("lag")))
            self.lags.update(dict(binned.group_by("lag").len().iter_rows()))

    def delay(self, covered: float = COVERED) -> int | None:
        """The least delay, in milliseconds, within which this share of the measured rows
        came; None: none was measured.
        """
        wanted = covered * self.lags.total()
        for lag in sorted(self.lags):
            wanted -= self.lags[lag]
            if wanted <= 0:
                return lag
        return None

    def warning(self, name: str) -> str | None:
        """One line if `who` refused more than a few percent of its rows, else None."""
        parts = []
        if self.rows and self.late / self.rows > THRESHOLD:
            parts.append(f"{self.late:,} of {self.rows:,} rows ({_percent(self.late, self.rows)}) were late")
            delay = self.delay()
            if delay:
                watermark = f"watermarks.bounded({durations.format_millis(delay)!r})"
                parts.append(f"{watermark} would have taken {COVERED:.0%} of them")
        if self.rows and self.future / self.rows > THRESHOLD:
            parts.append(
                f"{self.future:,} of {self.rows:,} rows ({_percent(self.future, self.rows)}) lie in the "
                "future of their ingestion; check the unit of event_time and the clocks of the sources"
            )
        return f"{name}: {'; '.join(parts)}" if parts else None


def lags_of_rows(
    rows: pl.DataFrame, clock: pl.Expr, before: int | None = None
) -> tuple[pl.Series, int | None]:
    """How far each row of one partition is behind its clock, and the clock after them.

    `rows` are in offset order; `clock` is `Watermark.clock()`; `before` is the clock before these rows.
    """
    reached = clock.cast(pl.Int64).cum_max().forward_fill()
    if before is not None:
        reached = pl.max_horizontal(reached, pl.lit(before, pl.Int64))
    measured = rows.select(
        reached.alias("reached"), (reached - pl.col("event_time")).clip(0).fill_null(0).alias("lag")
    )
    after = measured["reached"].max()
    return measured["lag"], after if isinstance(after, int) else before


def lags_of_refused(
    refused: pl.DataFrame, watermarks: Mapping[tuple[str, int], int], delay: int
) -> pl.Series:
    """How far refused rows are behind the clocks: at most as far as behind the watermark after the batch,
    plus its delay.

    `watermarks`: by topic and partition. Rows without a known watermark are left out.
    """
    late = refused.filter(pl.col("reason") != "future")
    partition_watermarks = pl.DataFrame(
        {
            "topic": pl.Series([topic for topic, _ in watermarks], dtype=pl.String),
            "partition": pl.Series([partition for _, partition in watermarks], dtype=pl.Int64),
            WATERMARK: pl.Series(list(watermarks.values()), dtype=pl.Int64),
        }
    )
    joined = late.select(
        "topic",
        pl.col("partition").cast(pl.Int64),
        pl.col("event_time").cast(pl.Int64),
        pl.col(ROW_COUNT).fill_null(1),
    ).join(partition_watermarks, on=["topic", "partition"])
    lag = (pl.col(WATERMARK) - pl.col("event_time") + delay).clip(0)
    return joined.select(lag.repeat_by(pl.col(ROW_COUNT).cast(pl.UInt32)).explode())[WATERMARK].drop_nulls()


def _count(refused: pl.DataFrame) -> int:
    """Rows refused by several operators count once where their offsets are known."""
    known = refused.filter(pl.col("offset").is_not_null()).select("topic", "partition", "offset").n_unique()
    unknown = refused.filter(pl.col("offset").is_null())
    return known + int(unknown[ROW_COUNT].fill_null(1).sum())


def _round_up(lag: pl.Expr) -> pl.Expr:
    """To two digits: 1,234 becomes 1,300."""
    digits = lag.clip(1).log10().floor().cast(pl.Int64)
    step = pl.lit(10, pl.Int64).pow((digits - 1).clip(0)).cast(pl.Int64)
    return ((lag + step - 1) // step * step).alias("lag")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"
