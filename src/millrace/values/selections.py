"""Expressions over columns that are not named: `pl.all()`, selectors, types, regular expressions.

They stand for the columns of the user. The times, and what says which pane a row is, are columns too, but
`cs.numeric() * 2` must not double them, and `pl.all_horizontal(cs.boolean())` must not ask for them. An
expression that matches nothing else, such as `pl.col("event_time", "ingestion_time")`, means them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from millrace.errors import DefinitionError

Step = Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class Selection:
    """Expressions, some of which are over columns that are not named, on rows of known columns."""

    exprs: tuple[pl.Expr, ...]
    user_columns: tuple[str, ...]
    """The columns that selectors see."""
    outputs: tuple[tuple[bool, tuple[str, ...]], ...]
    """Of each expression: whether it sees the columns of the user alone, and the columns that it makes."""

    @property
    def names(self) -> list[str]:
        """The columns that are made, in order."""
        return [name for _, names in self.outputs for name in names]

    def make(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The columns that the expressions make."""
        made: dict[str, pl.Series] = {}
        user_columns = [name for name in self.user_columns if name in frame.columns]
        for is_users, source in ((True, frame.select(user_columns)), (False, frame)):
            parts = [
                (expr, names)
                for expr, (users, names) in zip(self.exprs, self.outputs, strict=True)
                if users == is_users
            ]
            exprs, names = [expr for expr, _ in parts], [name for _, made in parts for name in made]
            if names:
                made |= source.with_columns(exprs).select(names).to_dict()
        return pl.DataFrame([made[name] for name in self.names])

    def select(self, frame: pl.DataFrame, carried: Collection[str]) -> pl.DataFrame:
        """What is made, with the carried columns that are not made anew."""
        names = self.names
        return self.make(frame).hstack(
            frame.select(name for name in frame.columns if name in carried and name not in names)
        )

    def add(self, frame: pl.DataFrame) -> pl.DataFrame:
        """All columns, with what is made."""
        return frame.with_columns(self.make(frame).get_columns())

    def filter(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows for which all that is made is true."""
        return frame.filter(*self.make(frame).get_columns())


def make_selection(
    text: str, exprs: Sequence[pl.Expr], schema: pl.Schema, hidden: Collection[str]
) -> Selection | None:
    """None where every expression names its columns, so that polars needs no help."""
    if not any(expr.meta.has_multiple_outputs() for expr in exprs):
        return None
    rows = schema.to_frame()
    users = rows.select(name for name in schema if name not in hidden)
    outputs = tuple(_outputs(expr, rows, users) for expr in exprs)
    names = [name for _, made in outputs for name in made]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"{text} makes the column {name!r} twice; give one of them another name")
    return Selection(tuple(exprs), tuple(users.columns), outputs)


def _outputs(expr: pl.Expr, rows: pl.DataFrame, users: pl.DataFrame) -> tuple[bool, tuple[str, ...]]:
    if expr.meta.has_multiple_outputs():
        names = _made_names(expr, users)
        if names:
            return True, names
    return False, tuple(rows.select(expr).columns)


def _made_names(expr: pl.Expr, frame: pl.DataFrame) -> tuple[str, ...]:
    try:
        return tuple(frame.select(expr).columns)
    except pl.exceptions.PolarsError:
        return ()


def selected_names(argument: Any, schema: pl.Schema, hidden: Collection[str]) -> tuple[str, ...]:
    """The columns that a selection stands for; those that are not the user's only where it means them."""
    rows = schema.to_frame()
    return _outputs(argument, rows, rows.select(name for name in schema if name not in hidden))[1]
