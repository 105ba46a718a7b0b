"""Rankings: the most frequent values, and the first rows in an order, each a list of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from millrace.aggregates.arguments import IntoExpr, parse_arguments, to_text
from millrace.aggregates.bags import KeptValues
from millrace.aggregates.contract import Reduction, check_sortable
from millrace.aggregates.own import own
from millrace.aggregates.sketches import FrequentSketch, require_datasketches
from millrace.errors import DefinitionError
from millrace.values.columns import RANK


@dataclass(frozen=True)
class Frequent(KeptValues):
    """The most frequent values with their counts, greatest count first; equal counts smallest value first."""

    k: int = 1
    ranks: bool = False

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """A list of `{column, count}`."""
        counts = pl.col(f"{name}.v").list.eval(pl.element().alias("v").value_counts(name="count"))
        entry = pl.element().struct
        rows = pl.struct(entry.field("v").alias(self.label), entry.field("count").cast(pl.Int64))
        ranked = rows.sort_by([entry.field("count"), entry.field("v")], descending=[True, False]).head(self.k)
        return with_ranks(counts.list.eval(ranked), [self.label, "count"], ranks=self.ranks).alias(name)

    @property
    def word(self) -> str:
        """It is one of two kinds of `top`."""
        return "top"

    def call_texts(self) -> list[str]:
        """How many, and of which column."""
        return [str(self.k), *self.value_texts, *(["ranks=True"] if self.ranks else [])]


@dataclass(frozen=True)
class Top(Reduction):
    """The first `k` rows in the order of the columns `by`; ties by the other columns, greatest first.
    Nulls come last. Partials hold `k` rows.
    """

    k: int = 1
    columns: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    descending: tuple[bool, ...] = (True,)
    ranks: bool = False

    def check(self, schema: pl.Schema) -> None:
        """Only values that have an order."""
        row = schema.to_frame().select(self._row.alias("row")).schema["row"]
        check_sortable(self, {field.name: field.dtype for field in row.fields})  # type: ignore[attr-defined] # a struct

    def input_columns(self) -> list[str]:
        """The columns of the list, and those that it is ranked by; or the one that holds them all."""
        return self._fields if self.argument is None else super().input_columns()

    def argument_expr(self) -> pl.Expr | None:
        """The row as one column."""
        return None if self.argument is None else self.argument.column(as_struct=True)

    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The first `k` of the rows."""
        ranked = self._row.filter(self._row.struct.field(self.by[0]).is_not_null())
        return [self._first(ranked).alias(f"{name}.v")]

    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """The first `k` of all. In `list.eval`, as `sort_by` mixes the groups of exploded lists
        (polars 2.1).
        """
        rows = pl.col(f"{name}.v").explode(empty_as_null=False)
        return [rows.implode().list.eval(self._first(pl.element()))]

    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """The rows, which are in order already, with the columns in theirs."""
        return with_ranks(pl.col(f"{name}.v"), self._fields, ranks=self.ranks).alias(name)

    def call_texts(self) -> list[str]:
        """How many, which columns, and the order."""
        texts = {name: repr(name) for name in self._fields}
        texts |= self.argument.value_texts if self.argument else {}
        by = [texts[name] for name in self.by]
        order = [f"by={by[0]}" if len(by) == 1 else f"by=[{', '.join(by)}]"]
        if not all(self.descending):
            order.append(f"descending={list(self.descending) if len(by) > 1 else False}")
        columns = [texts[name] for name in self.columns]
        return [str(self.k), *columns, *order, *(["ranks=True"] if self.ranks else [])]

    @property
    def word(self) -> str:
        """The function that makes it."""
        return "top"

    @property
    def _fields(self) -> list[str]:
        return list(dict.fromkeys((*self.columns, *self.by)))

    @property
    def _fields_by_weight(self) -> list[str]:
        return list(dict.fromkeys((*self.by, *self.columns)))

    @property
    def _row(self) -> pl.Expr:
        return pl.struct(self._fields_by_weight) if self.argument is None else pl.col(self.required_column)

    def _first(self, rows: pl.Expr) -> pl.Expr:
        fields = [rows.struct.field(name) for name in self._fields_by_weight]
        descending = [*self.descending, *[True] * (len(fields) - len(self.by))]
        return rows.sort_by(fields, descending=descending, nulls_last=True).head(self.k)


def with_ranks(rows: pl.Expr, fields: Sequence[str], *, ranks: bool) -> pl.Expr:
    """Lists of rows with these fields, and on request their places in the list, from 1."""
    row = pl.element()
    rank = [row.cum_count().cast(pl.Int64).alias(RANK)] if ranks else []
    return rows.list.eval(pl.struct(*(row.struct.field(name) for name in fields), *rank))


@dataclass(frozen=True)
class Ordering:
    """By which columns rows are ranked, and in which direction each."""

    by: tuple[IntoExpr, ...]
    descending: tuple[bool, ...]

    @property
    def texts(self) -> list[str]:
        """As users write it."""
        by = list(map(to_text, self.by))
        order = f"by={by[0]}" if len(by) == 1 else f"by=[{', '.join(by)}]"
        if all(self.descending):
            return [order]
        return [order, f"descending={list(self.descending) if len(by) > 1 else self.descending[0]}"]


def parse_ordering(by: IntoExpr | Sequence[IntoExpr], descending: bool | Sequence[bool]) -> Ordering:
    """What `top(by=..., descending=...)` says; refuses directions that do not fit the columns."""
    columns = (by,) if isinstance(by, str | pl.Expr) else tuple(by)
    directions = (descending,) * len(columns) if isinstance(descending, bool) else tuple(descending)
    if not columns:
        raise DefinitionError("top(by=[]) ranks by nothing; name at least one column")
    if len(directions) != len(columns) or not all(isinstance(one, bool) for one in directions):
        raise DefinitionError(
            f"top(by={list(map(to_text, columns))}, descending={descending!r}): give True or False for all "
            f"columns, or a list of {len(columns)}, one for each"
        )
    return Ordering(columns, directions)


def make_top(
    k: int, columns: Sequence[IntoExpr], ordering: Ordering, where: IntoExpr | None, *, ranks: bool
) -> Top:
    """The first rows in an order."""
    call = f"top({', '.join([str(k), *map(to_text, columns), *ordering.texts])})"
    names, argument = parse_arguments(call, [*ordering.by, *columns], where)
    by, rest = names[: len(ordering.by)], names[len(ordering.by) :]
    if len(set(by)) < len(by):
        raise DefinitionError(f"{call} ranks by a column twice; name each once")
    if ranks and RANK in names:
        raise DefinitionError(
            f"{call}: the rank of a row is called 'rank', as one of its columns is; rename it"
        )
    return Top(k=k, columns=rest, by=by, descending=ordering.descending, ranks=ranks, argument=argument)


def make_frequent(
    k: int, columns: Sequence[IntoExpr], where: IntoExpr | None, *, ranks: bool, approx: bool
) -> Reduction:
    """The most frequent values, exactly or by a sketch."""
    call = f"top({', '.join([str(k), *map(to_text, columns)])})"
    if len(columns) != 1:
        raise DefinitionError(f"{call}: name one column to count its values, or rank rows by=")
    [name], argument = parse_arguments(call, columns, where)
    if name == "count" or (ranks and name == RANK):
        raise DefinitionError(f"{call}: the list already has a column {name!r}; rename yours first")
    if not approx:
        return Frequent(None if argument else name, k, ranks, argument=argument)
    require_datasketches("top(approx=True)")
    return own(FrequentSketch(columns[0], k, ranks=ranks, where=where))
