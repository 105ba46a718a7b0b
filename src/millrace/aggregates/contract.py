"""How an aggregate is computed on columns: in three steps, which may run in different processes.

`partials` condenses the rows of a group where they are read, `merge` joins partials of one group, and
`result` computes the value. A mean over two processes:

    partials    rows 4 6 → (sum 10, n 2)        rows 9 → (sum 9, n 1)
    merge       (sum 19, n 3)
    result      6.33

Merging is associative and commutative: partials arrive in any order and grouping. An additive aggregate also
has `retract`, whose partials undo those of a row: merged with the above, (sum -9, n -1) gives the mean of 4
and 6.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import polars as pl

from millrace.aggregates.arguments import Argument
from millrace.errors import DefinitionError
from millrace.values.columns import ARGUMENT_PREFIX, OFFSET, ROW_TIME, SOURCE

ORDER = (ROW_TIME, SOURCE, OFFSET)
"""The order of rows: event time, then topic and partition, then offset."""


@dataclass(frozen=True)
class Reduction(ABC):
    """One column of a result."""

    column: str | None = None
    argument: Argument | None = field(default=None, kw_only=True)
    """What it is computed of, where that is not a plain column; see `bind`."""
    additive = False
    """Whether rows can be retracted: merged with the `retract` of a row,
    partials are as if that row had never been added.
    """
    ordered = False
    """Whether `partials` expects rows sorted by `ORDER`."""
    reproducible = True
    """Whether the result depends on the rows alone.
    If not, an earlier result cannot be computed again to retract it.
    """

    @abstractmethod
    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """From the rows of a group to partials, in columns called `name.…`."""

    @abstractmethod
    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """From the partials of a group to one, under the same names."""

    @abstractmethod
    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """From one partial to the result, called `name`."""

    def retract(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """From the rows of a group to the partials that undo them; only where `additive`."""
        return [-partial for partial in self.partials(name, dtype)]

    def running(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """From the partials of single rows in order to those of all rows up to each, under the same names;
        empty where there is no such form. Lists are left out: they are joined row by row.
        """
        return []

    def superseded(self, name: str, dtype: pl.DataType) -> pl.Expr | None:
        """Of the partials of one key in the order of their slices: whether later ones alone give the same
        result wherever they count, too. None where partials do not show that.
        """
        return None

    def check(self, schema: pl.Schema) -> None:  # noqa: B027 - most aggregates take any column
        """Refuses columns to which the aggregate does not apply."""

    def bind(self, name: str) -> Self:
        """The aggregate called `name`, which reads its argument from a column of its own."""
        return self if self.argument is None else replace(self, column=f"{ARGUMENT_PREFIX}{name}")

    def argument_expr(self) -> pl.Expr | None:
        """What makes the column that a bound aggregate reads; None where it is the user's own."""
        return None if self.argument is None else self.argument.column()

    def input_columns(self) -> list[str]:
        """The columns that the aggregate reads."""
        return [] if self.column is None else [self.column]

    @property
    def required_column(self) -> str:
        """The column; raises where none was given."""
        if self.column is None:
            raise DefinitionError(f"{self.word}() needs the name of a column")
        return self.column

    @property
    def label(self) -> str:
        """What its values are called where a result names them."""
        return next(iter(self.argument.values)) if self.argument else self.required_column

    @property
    def word(self) -> str:
        """The function that makes it."""
        return type(self).__name__.lower()

    def call_texts(self) -> list[str]:
        """What stands between the brackets of the call, before the condition."""
        return self.value_texts

    def __str__(self) -> str:
        """As users write it."""
        where = self.argument.where_texts if self.argument else []
        return f"{self.word}({', '.join([*self.call_texts(), *where])})"

    @property
    def value_texts(self) -> list[str]:
        """Its columns and expressions, as users write them."""
        if self.argument is not None:
            return list(self.argument.value_texts.values())
        return [] if self.column is None else [repr(self.column)]


def check_numeric(aggregate: Reduction, schema: pl.Schema) -> None:
    """Refuses values that are neither numbers nor booleans."""
    dtype = schema[aggregate.required_column]
    if not (dtype.is_numeric() or dtype == pl.Boolean):
        raise DefinitionError(
            f"{aggregate} needs numbers, but {', '.join(aggregate.value_texts)} is {dtype}; cast it "
            f"first, or use another aggregate than {aggregate.word}"
        )


def check_sortable(aggregate: object, schema: Mapping[str, pl.DataType]) -> None:
    """Refuses values that have no order."""
    for name, dtype in schema.items():
        if dtype.is_nested():
            raise DefinitionError(
                f"{aggregate} needs values that have an order, but {name!r} is {dtype}; use one of its parts"
            )
