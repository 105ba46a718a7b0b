"""Aggregations of one column, each in one word: `stream.group_by("line").max("speed")`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millrace import aggregates
from millrace.values import expressions
from millrace.values.calls import explain_errors

if TYPE_CHECKING:
    from millrace.stream import Stream


@explain_errors
class AggregationMethods(ABC):
    """Aggregations of a stream as one group, or of a keyed stream by key."""

    @abstractmethod
    def aggregate(self, *unnamed: object, **aggregates_by_name: Any) -> Stream:
        """One result per group and window, a column for each aggregate."""

    @property
    @abstractmethod
    def _value_columns(self) -> list[str]:
        """The columns that rows have besides keys and times."""

    def count(self, *, name: str = "count") -> Stream:
        """How many rows."""
        return self.aggregate(**{name: aggregates.count()})

    def sum(self, column: str, *, name: str | None = None) -> Stream:
        """The sum of `column`, under the same name unless another is given."""
        return self.aggregate(**{name or column: aggregates.sum(column)})

    def mean(self, column: str, *, name: str | None = None) -> Stream:
        """The mean of `column`, under the same name unless another is given."""
        return self.aggregate(**{name or column: aggregates.mean(column)})

    def min(self, column: str, *, name: str | None = None) -> Stream:
        """The smallest `column`, under the same name unless another is given."""
        return self.aggregate(**{name or column: aggregates.min(column)})

    def max(self, column: str, *, name: str | None = None) -> Stream:
        """The greatest `column`, under the same name unless another is given."""
        return self.aggregate(**{name or column: aggregates.max(column)})

    def latest(self, column: str, *, name: str | None = None) -> Stream:
        """The newest `column`, under the same name unless another is given."""
        return self.aggregate(**{name or column: aggregates.latest(column)})

    def earliest(self, column: str, *, name: str | None = None) -> Stream:
        """The oldest `column`, under the same name unless another is given."""
        return self.aggregate(**{name or column: aggregates.earliest(column)})

    def stddev(self, column: str, *, name: str | None = None) -> Stream:
        """The standard deviation of `column`, under the same name unless another is given."""
        return self.aggregate(**{name or column: aggregates.stddev(column)})

    def collect(self, column: str, *, name: str | None = None) -> Stream:
        """All values of `column` in order of event time, under the same name unless another is given."""
        return self.aggregate(**{name or column: aggregates.collect(column)})

    def distinct(self, column: str, *, name: str | None = None, approx: bool = False) -> Stream:
        """How many different values of `column`, under the same name unless another is given."""
        return self.aggregate(**{name or column: aggregates.distinct(column, approx=approx)})

    def quantiles(
        self, column: str, ranks: Sequence[float], *, name: str | None = None, approx: bool = False
    ) -> Stream:
        """The values of `column` at these ranks, as a list, under the same name unless another is given."""
        return self.aggregate(**{name or column: aggregates.quantiles(column, ranks, approx=approx)})

    def top(
        self, k: int, *columns: Any, by: str | None = None, name: str = "top", approx: bool = False
    ) -> Stream:
        """The `k` rows with the greatest `by` (of all columns, unless some are named), or the `k` most
        frequent values of a column.
        """
        columns = expressions.column_names("top", columns)
        if by is not None and not columns:
            columns = tuple(column for column in self._value_columns if column != by)
        return self.aggregate(**{name: aggregates.top(k, *columns, by=by, approx=approx)})
