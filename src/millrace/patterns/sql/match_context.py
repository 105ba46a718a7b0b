"""What conditions and measures look at: the rows of a partition, and which of them a match has mapped to which variable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

Row = tuple[Any, ...]


class NeedsMoreRows(Exception):
    """The answer depends on rows that have not come yet."""


@dataclass
class MatchContext:
    """A match in the making, or made."""

    rows: list[Row]
    is_ended: bool = True
    """Whether no further row can come."""
    has_rows_before: bool = False
    """Whether the partition has rows before these."""
    start: int = 0
    labels: list[int] = field(default_factory=list)
    """The variables of the rows from `start` on, by number."""
    current: int = -1
    """The current row, counted from `start`; -1 in an empty match."""
    match_number: int = 0
    """Which match of the partition it is."""

    def last_row(self, variables: frozenset[int] | None, offset: int, *, final: bool) -> int | None:
        """The place of the last row that is mapped to one of some variables, or so many before it."""
        upper = len(self.labels) - 1 if final else self.current
        if variables is None:
            return self.start + upper - offset if upper >= offset else None
        for place in range(upper, -1, -1):
            if self.labels[place] in variables:
                if offset == 0:
                    return self.start + place
                offset -= 1
        return None

    def first_row(self, variables: frozenset[int] | None, offset: int, *, final: bool) -> int | None:
        """The place of the first row that is mapped to one of some variables, or so many after it."""
        upper = len(self.labels) - 1 if final else self.current
        if variables is None:
            return self.start + offset if offset <= upper else None
        for place in range(upper + 1):
            if self.labels[place] in variables:
                if offset == 0:
                    return self.start + place
                offset -= 1
        return None

    def all_rows(
        self, variables: frozenset[int] | None, *, final: bool, newest_first: bool = False
    ) -> Iterator[int]:
        """The places of all rows that are mapped to one of some variables."""
        places = range(len(self.labels) if final else self.current + 1)
        ordered = reversed(places) if newest_first else places
        return (
            self.start + place for place in ordered if variables is None or self.labels[place] in variables
        )

    def move(self, place: int | None, by: int) -> int | None:
        """A place so many rows further in the partition, in the match or out of it."""
        if place is None or place + by < 0:
            return None
        if place + by >= len(self.rows):
            if not self.is_ended:
                raise NeedsMoreRows
            return None
        return place + by

    def label_of(self, place: int | None) -> int | None:
        """The variable of a row, if it has one already."""
        return (
            None
            if place is None or not 0 <= place - self.start < len(self.labels)
            else self.labels[place - self.start]
        )


ExpressionFunction = Callable[[MatchContext, int | None], Any]
"""The value of an expression in a context; inside navigation and aggregates: at the row with this place."""


@dataclass(frozen=True)
class CompiledExpression:
    """An expression, ready, and the type of its values."""

    evaluate: ExpressionFunction
    dtype: pl.DataType
