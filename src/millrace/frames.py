"""WHAT a row shows of the rows around it: functions for `.group_by(...).over(...)`, beside the aggregates.

The rows of a key are in order of event time (ties: topic, partition, offset). `lag`, `lead` and `row_number`
count along all of them, `first` and `last` within the frame. Unlike aggregates, none of them passes over
nulls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.values.calls import explain_errors_of, require_type

__all__ = ["FrameFunction", "first", "lag", "last", "lead", "row_number"]


def __dir__() -> list[str]:
    """What completion shows."""
    return __all__


@dataclass(frozen=True)
class FrameFunction:
    """One column beside those of a row."""

    column: str | None = None

    kind: ClassVar[str]
    """The word for it in stored state."""

    def input_columns(self) -> list[str]:
        """The columns that the function reads."""
        return [] if self.column is None else [self.column]

    def settings(self) -> dict[str, Any]:
        """What it was made with, besides its column."""
        return {}

    def __str__(self) -> str:
        """As users write it."""
        settings = (f"{name}={value!r}" for name, value in self.settings().items() if value is not None)
        return f"{self.kind}({', '.join([*map(repr, self.input_columns()), *settings])})"


@dataclass(frozen=True)
class Lag(FrameFunction):
    """The value of an earlier row."""

    n: int = 1

    kind = "lag"

    def settings(self) -> dict[str, Any]:
        """How many rows earlier."""
        return {"n": self.n}


@dataclass(frozen=True)
class Lead(FrameFunction):
    """The value of a later row, which comes less than `within` after this one."""

    n: int = 1
    within: int = 0

    kind = "lead"

    def settings(self) -> dict[str, Any]:
        """How many rows later, and how much later at most."""
        return {"n": self.n, "within": self.within}

    def __str__(self) -> str:
        """As users write it."""
        return f"lead({self.column!r}, n={self.n}, within={durations.format_millis(self.within)!r})"


@dataclass(frozen=True)
class RowNumber(FrameFunction):
    """The number of the row among those of its key."""

    kind = "row_number"


@dataclass(frozen=True)
class First(FrameFunction):
    """The value of the first row of the frame."""

    kind = "first"


@dataclass(frozen=True)
class Last(FrameFunction):
    """The value of the last row of the frame."""

    kind = "last"


def lag(column: str, n: int = 1) -> Lag:
    """`column` of the row `n` before this one; null where there are not so many."""
    return Lag(_check_column("lag", column), durations.check_whole(n, name="lag(n)", minimum=1))


def lead(column: str, n: int = 1, *, within: Duration | None = None) -> Lead:
    """`column` of the row `n` after this one, if that comes less than `within` later; null otherwise.

    A row waits until that is known, at most until the watermark has passed it by `within`.
    """
    name = _check_column("lead", column)
    rows = durations.check_whole(n, name="lead(n)", minimum=1)
    if within is None:
        raise DefinitionError(
            f"lead({column!r}) without a bound would keep the last row of every key waiting for ever, and "
            "whatever follows with it; say how much later the row may come: "
            f"lead({column!r}, within='10m')"
        )
    return Lead(name, rows, durations.parse_positive(within, name="within"))


def row_number() -> RowNumber:
    """1 for the first row of the key, 2 for the second, and so on."""
    return RowNumber()


def first(column: str) -> First:
    """`column` of the first row of the frame; null where the frame is empty.
    For the first value that is not null: `aggregates.earliest`.
    """
    return First(_check_column("first", column))


def last(column: str) -> Last:
    """`column` of the last row of the frame; null where the frame is empty.
    For the last value that is not null: `aggregates.latest`.
    """
    return Last(_check_column("last", column))


def _check_column(call: str, column: Any) -> str:
    require_type(call, column, str, "the name of a column")
    return str(column)


explain_errors_of(globals(), "first", "lag", "last", "lead", "row_number")
