"""How an aggregate is computed on columns."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import polars as pl

from millrace.errors import DefinitionError

ORDER = ("_t", "_src", "_off")
"""The order in which rows are taken: event time, then topic and partition, then offset."""


@dataclass(frozen=True)
class Reduction(ABC):
    """One column of a result, in three steps: `partials` condenses rows, `merge` condenses partials, `result` reads the answer off them."""

    column: str | None = None
    additive = False
    """Whether rows can be taken back: merged with what `taken_back` makes of a row, partials are as if it had never come."""
    ordered = False
    """Whether `partials` expects rows sorted by `ORDER`."""
    reproducible = True
    """Whether the answer depends on the rows alone. If not, a value shown before cannot be computed again to take it back."""

    @abstractmethod
    def partials(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Rows to partials, inside a group; columns are called `name.…`."""

    @abstractmethod
    def merge(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Partials to one partial, inside a group, under the same names."""

    @abstractmethod
    def result(self, name: str, dtype: pl.DataType) -> pl.Expr:
        """One partial to the answer, called `name`."""

    def retract(self, name: str, dtype: pl.DataType) -> list[pl.Expr]:
        """Rows to the partials that undo them; only where `additive`."""
        return [-partial for partial in self.partials(name, dtype)]

    def check(self, schema: pl.Schema) -> None:  # noqa: B027 - most aggregates take any column
        """Refuses columns for which the aggregate has no meaning."""

    def input_columns(self) -> list[str]:
        """The columns it reads."""
        return [] if self.column is None else [self.column]

    @property
    def required_column(self) -> str:
        """The column, where one is needed."""
        if self.column is None:
            raise DefinitionError(f"{type(self).__name__.lower()}() needs the name of a column")
        return self.column

    def __str__(self) -> str:
        """As a user would write it."""
        return f"{type(self).__name__.lower()}({'' if self.column is None else repr(self.column)})"


def check_numeric(aggregate: Reduction, schema: pl.Schema) -> None:
    """Refuses a column that is neither numbers nor booleans."""
    dtype = schema[aggregate.required_column]
    if not (dtype.is_numeric() or dtype == pl.Boolean):
        name = type(aggregate).__name__.lower()
        raise DefinitionError(
            f"{aggregate} needs numbers, but {aggregate.column!r} is {dtype}; cast it first, or use another aggregate than {name}"
        )


def check_sortable(aggregate: object, schema: pl.Schema, columns: list[str]) -> None:
    """Refuses columns whose values have no order."""
    for column in columns:
        if schema[column].is_nested():
            raise DefinitionError(
                f"{aggregate} needs values that have an order, but {column!r} is {schema[column]}; use one of its parts"
            )
