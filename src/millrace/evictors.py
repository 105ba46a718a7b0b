"""WHICH rows of a window count: evictors leave rows out of a pane before its aggregates are computed.

    .window(windows.fixed("1h"), evict=evictors.last(10))

Each pane is computed anew from all rows that the window has taken, less those that the evictor leaves out of
them. A row that one pane leaves out may be part of a later one, where the evictor lets it; so the last value
of a window depends on its rows alone, and not on when panes were shown or how rows came.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.values.calls import explain_errors_of
from millrace.windows import is_difference

__all__ = ["Evictor", "custom", "delta", "last", "within"]

KeepRows: TypeAlias = Callable[[pl.DataFrame], pl.Series | pl.DataFrame]
"""Of the rows of a window in order those that count: a column of booleans, or the rows themselves."""


class Evictor(ABC):
    """Says which rows of a window a pane is computed from."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns that it looks at, besides the order of rows; None: all of them."""
        return ()

    @abstractmethod
    def __str__(self) -> str:
        """As users write it."""


@dataclass(frozen=True)
class LastEvictor(Evictor):
    """The last rows in order."""

    rows: int

    def __str__(self) -> str:
        """As users write it."""
        return f"last({self.rows})"


@dataclass(frozen=True)
class Within(Evictor):
    """The rows of the last stretch of event time, up to that of the newest row."""

    span: int

    def __str__(self) -> str:
        """As users write it."""
        return f"within({durations.format_millis(self.span)!r})"


@dataclass(frozen=True)
class DeltaEvictor(Evictor):
    """The rows whose column is near that of the newest."""

    column: str
    threshold: float

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    def __str__(self) -> str:
        """As users write it."""
        return f"delta({self.column!r}, {self.threshold})"


@dataclass(frozen=True)
class Custom(Evictor):
    """Those that a function of a user's own keeps."""

    fn: KeepRows

    @property
    def columns(self) -> None:
        """All of them."""
        return None

    @property
    def name(self) -> str:
        """By what stored state knows the function."""
        return str(getattr(self.fn, "__name__", type(self.fn).__name__))

    def keep(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that the function keeps; refuses anything else than rows like these."""
        kept = self.fn(rows)
        if isinstance(kept, pl.Series) and kept.dtype == pl.Boolean and len(kept) == rows.height:
            return rows.filter(kept)
        if isinstance(kept, pl.DataFrame) and kept.schema == rows.schema:
            return kept
        raise DefinitionError(
            f"evict={self}: {_describe(kept)} came of {rows.height} rows; return a column with true or false "
            "for each row, or a frame of rows with the same columns"
        )

    def __str__(self) -> str:
        """As users write it."""
        return f"custom({self.name})"


def last(n: int) -> LastEvictor:
    """The last `n` rows in order of event time, topic, partition, offset."""
    return LastEvictor(durations.check_whole(n, name="n", minimum=1))


def within(span: Duration) -> Within:
    """The rows of the last `span` of event time: those later than the newest row's time less `span`."""
    return Within(durations.parse_positive(span, name="span"))


def delta(column: str, threshold: float) -> DeltaEvictor:
    """The rows whose `column` differs by at most `threshold` from that of the newest row that has a value.
    Rows without a value are kept.
    """
    if not isinstance(column, str):
        raise DefinitionError(f"delta({column!r}) names no column; use its name, such as 'speed'")
    if not is_difference(threshold):
        raise DefinitionError(f"threshold={threshold!r} is not a difference; use a number from 0 on")
    return DeltaEvictor(column, threshold)


def custom(fn: KeepRows) -> Custom:
    """What a function keeps. It is given the rows of a window as a frame, in order of event time, topic,
    partition, offset, and returns a column of booleans, or the frame of the rows that count.

    It is called for each pane with all rows of the window, which are kept as long as the window is.
    """
    if not callable(fn):
        raise DefinitionError(f"custom({fn!r}) is not a function; give it one of a frame of rows")
    return Custom(fn)


def __dir__() -> list[str]:
    """Only the public names, for completion."""
    return __all__


def _describe(kept: object) -> str:
    if isinstance(kept, pl.Series):
        return f"a column of {len(kept)} values of type {kept.dtype}"
    return (
        f"a frame with the columns {', '.join(kept.columns)}"
        if isinstance(kept, pl.DataFrame)
        else repr(kept)
    )


explain_errors_of(globals(), "custom", "delta", "last", "within")
