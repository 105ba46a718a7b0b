"""WHAT is computed: aggregates over the rows of a group.

Each takes the name of a column or an expression on the row, and `where=`, a condition: rows for which it is
false or null do not count. All but `count()` ignore nulls. A result depends on the rows alone, never on their
order or on batches; the docstrings of the two sketches for which that does not hold say so. For an aggregate
of your own, subclass `Aggregate`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millrace.aggregates.arguments import IntoExpr, parse_arguments, to_text
from millrace.aggregates.bags import Collect, Distinct, OfDistinct, Quantiles
from millrace.aggregates.contract import ORDER, Reduction
from millrace.aggregates.own import Aggregate, Own, own
from millrace.aggregates.picks import Earliest, Latest, Max, Min
from millrace.aggregates.rankings import Frequent, Top, make_frequent, make_top, parse_ordering
from millrace.aggregates.sketches import DistinctSketch, FrequentSketch, QuantilesSketch, require_datasketches
from millrace.aggregates.sums import Count, Mean, StdDev, Sum
from millrace.errors import DefinitionError
from millrace.values.calls import explain_errors_of
from millrace.values.missing_names import missing_name

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
    "OfDistinct",
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


if not TYPE_CHECKING:  # a type checker would take every name that is missing for Any

    def __getattr__(name: str) -> Any:
        raise missing_name("millrace.aggregates", name, __dir__())


def __dir__() -> list[str]:
    """What completion shows: the vocabulary, without the classes behind it."""
    return ["Aggregate", "Reduction", *(name for name in __all__ if name.islower() and name != "own")]


def count(
    column: IntoExpr | None = None, *, where: IntoExpr | None = None, distinct: bool = False
) -> Reduction:
    """The number of rows, or of values of `column` that are not null; `distinct` counts equal ones once."""
    if distinct and column is None:
        raise DefinitionError(
            "count(distinct=True) counts different values, and no column says which; write "
            "count('name', distinct=True)"
        )
    return _make(Distinct if distinct else Count, "count", column, where)


def sum(column: IntoExpr, *, where: IntoExpr | None = None, distinct: bool = False) -> Reduction:
    """The sum of `column`; with `distinct`, of equal values one."""
    return _make_perhaps_distinct(Sum, column, where, distinct=distinct)


def mean(column: IntoExpr, *, where: IntoExpr | None = None, distinct: bool = False) -> Reduction:
    """The arithmetic mean of `column`; with `distinct`, of equal values one."""
    return _make_perhaps_distinct(Mean, column, where, distinct=distinct)


def stddev(column: IntoExpr, *, where: IntoExpr | None = None, distinct: bool = False) -> Reduction:
    """The standard deviation of `column`, taken as a sample; null for fewer than two values.
    With `distinct`, of equal values one.
    """
    return _make_perhaps_distinct(StdDev, column, where, distinct=distinct)


def min(column: IntoExpr, *, where: IntoExpr | None = None) -> Reduction:
    """The smallest value of `column`."""
    return _make(Min, "min", column, where)


def max(column: IntoExpr, *, where: IntoExpr | None = None) -> Reduction:
    """The greatest value of `column`."""
    return _make(Max, "max", column, where)


def latest(column: IntoExpr, *, where: IntoExpr | None = None) -> Reduction:
    """The value of `column` in the row with the latest event time (ties:
    the later topic, partition, offset).
    """
    return _make(Latest, "latest", column, where)


def earliest(column: IntoExpr, *, where: IntoExpr | None = None) -> Reduction:
    """The value of `column` in the row with the earliest event time (ties:
    the earlier topic, partition, offset).
    """
    return _make(Earliest, "earliest", column, where)


def collect(column: IntoExpr, *, where: IntoExpr | None = None, distinct: bool = False) -> Reduction:
    """All values of `column` as a list, in order of event time (ties: topic, partition, offset).
    With `distinct`, each value once, where it comes first.
    """
    return _make(Collect, "collect", column, where, distinct=distinct)


def distinct(column: IntoExpr, *, where: IntoExpr | None = None, approx: bool = False) -> Reduction:
    """The number of distinct values of `column`: exact, or with `approx` by HyperLogLog,
    with a standard error of 1.6 %.
    """
    if not approx:
        return _make(Distinct, "distinct", column, where)
    require_datasketches("distinct(approx=True)")
    return own(DistinctSketch(column, where=where))


def quantiles(
    column: IntoExpr,
    ranks: Sequence[float],
    *,
    where: IntoExpr | None = None,
    distinct: bool = False,
    approx: bool = False,
) -> Reduction:
    """A list: for each rank, such as 0.5 or 0.99, the smallest value such that this share of all values is
    not greater.

    Exact, or with `approx` by KLL: the rank is off by at most 1.33 % in 99 of 100 cases. With `distinct`,
    equal values count once.
    """
    wrong = [rank for rank in ranks if not 0 <= rank <= 1]
    call = f"quantiles({to_text(column)}, {list(ranks)})"
    if wrong or not ranks:
        raise DefinitionError(f"{call}: ranks lie between 0 and 1, such as [0.5, 0.9, 0.99]")
    if not approx:
        return _make_perhaps_distinct(Quantiles, column, where, distinct=distinct, ranks=tuple(ranks))
    if distinct:
        raise DefinitionError(f"{call}: a sketch does not know equal values; leave out approx or distinct")
    require_datasketches("quantiles(approx=True)")
    return own(QuantilesSketch(column, tuple(ranks), where=where))


def top(
    k: int,
    *columns: IntoExpr,
    by: IntoExpr | Sequence[IntoExpr] | None = None,
    descending: bool | Sequence[bool] = True,
    where: IntoExpr | None = None,
    ranks: bool = False,
    approx: bool = False,
) -> Reduction:
    """At most `k` entries: the first rows in the order `by`, as `{columns, by}`; without `by` the most
    frequent values, as `{column, count}`. With `ranks` also `rank`, from 1.

    `by` is one column or several, the first of which decides before the others; the greatest come first, or
    the smallest where `descending` is False (one for all, or one for each). A row whose first `by` is null
    is left out; other nulls come last. Rows with equal `by` are ordered by their other columns, greatest
    first; equally frequent values smallest first. With `approx`, a sketch finds frequent values: counts are
    off by at most 0.34 % of all values.
    """
    columns_text = ", ".join([str(k), *map(to_text, columns)])
    if k < 1:
        raise DefinitionError(f"top({columns_text}): k is the length of the list; use at least 1")
    if by is None:
        if descending is not True:
            raise DefinitionError(
                f"top({columns_text}, descending={descending}): the most frequent values come first; "
                "say by= to rank rows"
            )
        return make_frequent(k, columns, where, ranks=ranks, approx=approx)
    if approx:
        raise DefinitionError(
            f"top({columns_text}, by={to_text(by)}, approx=True): only frequent values are approximated; "
            "leave out approx, since with by= no more than k rows are kept"
        )
    return make_top(k, columns, parse_ordering(by, descending), where, ranks=ranks)


def _make(
    kind: type[Reduction], call: str, column: IntoExpr | None, where: IntoExpr | None, **settings: Any
) -> Reduction:
    names, argument = parse_arguments(f"{call}({'' if column is None else to_text(column)})", [column], where)
    return kind(names[0] if names and argument is None else None, argument=argument, **settings)


def _make_perhaps_distinct(
    kind: type[Reduction],
    column: IntoExpr,
    where: IntoExpr | None,
    *,
    distinct: bool,
    **settings: Any,
) -> Reduction:
    call = kind.__name__.lower()
    if not distinct:
        return _make(kind, call, column, where, **settings)
    return _make(OfDistinct, call, column, where, inner=kind(**settings))


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
