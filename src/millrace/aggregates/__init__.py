"""WHAT is computed: aggregates over the rows of a group.

All but `count()` ignore nulls. A result depends on the rows alone, never on their order or on batches; the
docstrings of the two sketches for which that does not hold say so. For an aggregate of your own, subclass
`Aggregate`.
"""

from collections.abc import Sequence

from millrace.aggregates.bags import Collect, Distinct, Frequent, Quantiles, Top
from millrace.aggregates.contract import ORDER, Reduction
from millrace.aggregates.own import Aggregate, Own, own
from millrace.aggregates.picks import Earliest, Latest, Max, Min
from millrace.aggregates.sketches import DistinctSketch, FrequentSketch, QuantilesSketch, require_datasketches
from millrace.aggregates.sums import Count, Mean, StdDev, Sum
from millrace.errors import DefinitionError
from millrace.values.calls import explain_errors_of

__all__ = [
    "ORDER",
    "Aggregate",
    "Collect",
    "Count",
    "Distinct",
    "DistinctSketch",
    "Earliest",
    "Frequent",
    "FrequentSketch",
    "Latest",
    "Max",
    "Mean",
    "Min",
    "Own",
    "Quantiles",
    "QuantilesSketch",
    "Reduction",
    "StdDev",
    "Sum",
    "Top",
    "collect",
    "count",
    "distinct",
    "earliest",
    "latest",
    "max",
    "mean",
    "min",
    "own",
    "quantiles",
    "stddev",
    "sum",
    "top",
]


def __dir__() -> list[str]:
    """What completion shows: the vocabulary, without the classes behind it."""
    return ["Aggregate", "Reduction", *(name for name in __all__ if name.islower() and name != "own")]


def count(column: str | None = None) -> Count:
    """The number of rows, or of values of `column` that are not null."""
    return Count(column)


def sum(column: str) -> Sum:
    """The sum of `column`."""
    return Sum(column)


def mean(column: str) -> Mean:
    """The arithmetic mean of `column`."""
    return Mean(column)


def stddev(column: str) -> StdDev:
    """The standard deviation of `column`, taken as a sample; null for fewer than two values."""
    return StdDev(column)


def min(column: str) -> Min:
    """The smallest value of `column`."""
    return Min(column)


def max(column: str) -> Max:
    """The greatest value of `column`."""
    return Max(column)


def latest(column: str) -> Latest:
    """The value of `column` in the row with the latest event time (ties:
    the later topic, partition, offset).
    """
    return Latest(column)


def earliest(column: str) -> Earliest:
    """The value of `column` in the row with the earliest event time (ties:
    the earlier topic, partition, offset).
    """
    return Earliest(column)


def collect(column: str) -> Collect:
    """All values of `column` as a list, in order of event time (ties: topic, partition, offset)."""
    return Collect(column)


def distinct(column: str, *, approx: bool = False) -> Reduction:
    """The number of distinct values of `column`: exact, or with `approx` by HyperLogLog,
    with a standard error of 1.6 %.
    """
    if not approx:
        return Distinct(column)
    require_datasketches("distinct(approx=True)")
    return own(DistinctSketch(column))


def quantiles(column: str, ranks: Sequence[float], *, approx: bool = False) -> Reduction:
    """A list: for each rank, such as 0.5 or 0.99, the smallest value such that this share of all values is
    not greater.

    Exact, or with `approx` by KLL: the rank is off by at most 1.33 % in 99 of 100 cases.
    """
    wrong = [rank for rank in ranks if not 0 <= rank <= 1]
    if wrong or not ranks:
        raise DefinitionError(
            f"quantiles({column!r}, {list(ranks)}): ranks lie between 0 and 1, such as [0.5, 0.9, 0.99]"
        )
    if not approx:
        return Quantiles(column, tuple(ranks))
    require_datasketches("quantiles(approx=True)")
    return own(QuantilesSketch(column, tuple(ranks)))


def top(k: int, *columns: str, by: str | None = None, approx: bool = False) -> Reduction:
    """At most `k` entries: the rows with the greatest `by`, as `{columns, by}`; without `by` the most
    frequent values, as `{column, count}`.

    The greatest come first. Rows with equal `by` are ordered by their other columns, greatest first; equally
    frequent values smallest first. With `approx`, a sketch finds frequent values: counts are off by at most
    0.34 % of all values.
    """
    arguments = ", ".join([str(k), *map(repr, columns), *([f"by={by!r}"] if by else [])])
    if k < 1:
        raise DefinitionError(f"top({arguments}): k is the length of the list; use at least 1")
    if by is not None:
        if approx:
            raise DefinitionError(
                f"top({arguments}, approx=True): only frequent values are approximated; leave out approx, "
                "since with by= no more than k rows are kept"
            )
        return Top(None, k, columns, by)
    if len(columns) != 1:
        raise DefinitionError(f"top({arguments}): name one column to count its values, or rank rows by=")
    if columns == ("count",):
        raise DefinitionError(f"top({arguments}): the list already has a column 'count'; rename yours first")
    if not approx:
        return Frequent(columns[0], k)
    require_datasketches("top(approx=True)")
    return own(FrequentSketch(columns[0], k))


explain_errors_of(
    globals(),
    "collect",
    "count",
    "distinct",
    "earliest",
    "latest",
    "max",
    "mean",
    "min",
    "own",
    "quantiles",
    "stddev",
    "sum",
    "top",
)
