"""What conditions and measures see: the rows of a partition,
and the variables to which a match has mapped them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

Row = tuple[Any, ...]


class NeedsMoreRows(Exception):
    """The answer depends on rows that have not arrived yet."""


@dataclass
class MatchContext:
    """A match, complete or being built."""

    rows: list[Row]
    is_ended: bool = True
    """Whether no further row can arrive."""
    has_rows_before: bool = False
    """Whether the partition has rows before these."""
    start: int = 0
    labels: list[int] = field(default_factory=list)
    """The variable of each row from `start` on, by number."""
    current: int = -1
    """The current row, counted from `start`; -1 in an empty match."""
    match_number: int = 0
    """MATCH_NUMBER(): matches of a partition are counted from 1."""

    def last_row(self, variables: frozenset[int] | None, offset: int, *, final: bool) -> int | None:
        """The index of the last row mapped to one of `variables`,
        or of the one `offset` before it among those.
        """
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
        """The index of the first row mapped to one of `variables`,
        or of the one `offset` after it among those.
        """
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
        """The indexes of all rows mapped to one of `variables`."""
        places = range(len(self.labels) if final else self.current + 1)
        ordered = reversed(places) if newest_first else places
        return (
            self.start + place for place in ordered if variables is None or self.labels[place] in variables
        )

    def move(self, place: int | None, by: int) -> int | None:
        """The index `by` rows further in the partition, inside the match or not."""
        if place is None or place + by < 0:
            return None
        if place + by >= len(self.rows):
            if not self.is_ended:
                raise NeedsMoreRows
            return None
        return place + by

    def label_of(self, place: int | None) -> int | None:
        """The variable of a row; None where the row is not mapped."""
        return (
            None
            if place is None or not 0 <= place - self.start < len(self.labels)
            else self.labels[place - self.start]
        )


ExpressionFunction = Callable[[MatchContext, int | None], Any]
"""The value of an expression; inside navigation and aggregates, at the row with the given index."""


@dataclass(frozen=True)
class CompiledExpression:
    """An expression as a function, and the type of its values."""

    evaluate: ExpressionFunction
    dtype: pl.DataType
