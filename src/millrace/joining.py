"""Joins within windows: both sides become one stream, are collected by key, and each pane's pairs are told row by row.

So a join has the windows, triggers, lateness and corrections of an aggregation, and over panes it takes back what they take back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import polars as pl

from millrace import aggregates, graph
from millrace.aggregating import aggregation
from millrace.errors import DefinitionError
from millrace.topics import SYSTEM

How: TypeAlias = Literal["inner", "left", "right", "full"]
Names: TypeAlias = tuple[str, str]

SIDES: Names = ("_left", "_right")
"""The columns that hold what is known of each side; the other is null."""
THERE = "_there"
"""A field of every side, so that one without columns besides its key is a side too."""


@dataclass(frozen=True)
class Sided:
    """One side of a join: rows or panes, their key, and the columns they bring."""

    node: graph.Node
    keys: tuple[str, ...]
    windowing: graph.Windowing | None

    @property
    def columns(self) -> list[str]:
        """The columns besides the key and those of millrace's own."""
        return [column for column in self.node.schema if column not in self.keys and column not in SYSTEM]

    @property
    def by(self) -> str:
        """As a user would write it."""
        return f"by({', '.join(map(repr, self.keys))})"


def cogrouped(left: Sided, right: Sided, names: Names) -> graph.Aggregation:
    """For each key and window the rows of both sides, as two lists."""
    for side, name in zip((left, right), names, strict=True):
        if not side.columns:
            raise DefinitionError(f"cogroup: {side.by} leaves no columns for {name!r}; keep one besides the key")
        if name in left.keys or name in SYSTEM:
            raise DefinitionError(f"cogroup: a list cannot be named {name!r}: the result already has that column; say names=(..., ...)")
    if names[0] == names[1]:
        raise DefinitionError(f"cogroup: names={names!r} must differ")
    windowing = _windowing(left, right, "cogroup")
    return _collected(left, right, names, windowing, there=False)


def joined(left: Sided, right: Sided, how: How, suffix: str) -> graph.Pairs:
    """The pairs of rows of both sides with the same key in the same window, and with `how` those without a partner."""
    check_how(how)
    windowing = _windowing(left, right, "join")
    if windowing.output == "delta":
        raise DefinitionError("join: output='delta' has no meaning, as the rows of a join are told one by one anyway; leave it out")
    collected = _collected(left, right, SIDES, windowing, there=True)
    apply = pairing(left.keys, how, out_names(left, right, suffix))
    text = f"{how} join by {', '.join(left.keys)}"
    return graph.Pairs((collected,), graph.applied(apply, collected.schema, text), apply, text)


def check_how(how: str) -> None:
    """Refuses a kind of join that there is not."""
    if how not in get_args(How):
        raise DefinitionError(f"how={how!r} is unknown; use one of {', '.join(map(repr, get_args(How)))}")


def out_names(left: Sided, right: Sided, suffix: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the columns of each side are called in the result: those of the right get the suffix where the left has the name."""
    taken = {*left.keys, *left.columns}
    ours = {column: column for column in left.columns}
    theirs = {column: f"{column}{suffix}" if column in taken else column for column in right.columns}
    names = [*left.keys, *ours.values(), *theirs.values()]
    if twice := sorted({name for name in names if names.count(name) > 1 or name in SYSTEM}):
        raise DefinitionError(
            f"join: the result would have {twice[0]!r} twice; rename it on one side, or choose another suffix than {suffix!r}"
        )
    return ours, theirs


def pairing(keys: tuple[str, ...], how: How, names: tuple[dict[str, str], dict[str, str]]) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """What makes rows of panes that hold both sides as lists. A null key has no partner, as in SQL."""
    left, right = SIDES
    known = pl.all_horizontal(pl.col(key).is_not_null() for key in keys)
    both = known & (pl.col(left).list.len() > 0) & (pl.col(right).list.len() > 0)
    fields = [pl.col(side).struct.field(c).alias(name) for side, named in zip(SIDES, names, strict=True) for c, name in named.items()]

    def pairs(frame: pl.DataFrame) -> pl.DataFrame:
        rest = [column for column in frame.columns if column not in keys and column not in SIDES]
        parts = [frame.filter(both).explode(left, empty_as_null=False).explode(right, empty_as_null=False)]
        lonely = frame.filter(~both)
        for side, other, wanted in ((left, right, ("left", "full")), (right, left, ("right", "full"))):
            if how in wanted:
                alone = lonely.explode(side, empty_as_null=False).with_columns(pl.lit(None, frame.schema[other].inner).alias(other))  # type: ignore[attr-defined] # a list
                parts.append(alone.select(frame.columns))
        return pl.concat(parts).select(*keys, *fields, *rest)

    return pairs


def _windowing(left: Sided, right: Sided, what: str) -> graph.Windowing:
    if left.windowing is None:
        raise DefinitionError(
            f"{what} without a window would wait for ever for partners; say .window(...) first, or {what}(..., within=...)"
        )
    if right.windowing is not None and right.windowing != left.windowing:
        raise DefinitionError(
            f"{what}: one side lies in {left.windowing.window} and the other in {right.windowing.window}; window both alike"
        )
    return left.windowing


def _collected(left: Sided, right: Sided, names: Names, windowing: graph.Windowing, *, there: bool) -> graph.Aggregation:
    """Both sides as one stream, collected by key."""
    check_sides(left, right)
    structs = [_struct(side, there=there) for side in (left, right)]
    types = [side.node.schema.to_frame().select(struct.alias("s")).schema["s"] for side, struct in zip((left, right), structs, strict=True)]
    nothing = [pl.lit(None, dtype) for dtype in types]
    ours = _tagged(left, left.keys, dict(zip(names, (structs[0], nothing[1]), strict=True)))
    theirs = _tagged(right, left.keys, dict(zip(names, (nothing[0], structs[1]), strict=True)))
    node = graph.Union((ours, theirs), ours.schema)
    return aggregation(node, left.keys, {name: aggregates.collect(name) for name in names}, windowing)


def _struct(side: Sided, *, there: bool) -> pl.Expr:
    return pl.struct(*([pl.lit(value=True).alias(THERE)] if there else []), *side.columns)


def _tagged(side: Sided, keys: tuple[str, ...], columns: dict[str, pl.Expr]) -> graph.Stateless:
    """A side's rows with the key under common names and the rest in one column."""

    def tag(frame: pl.DataFrame) -> pl.DataFrame:
        rest = [c for c in frame.columns if c in SYSTEM or c in graph.INTERNAL]
        return frame.select(*[pl.col(own).alias(key) for own, key in zip(side.keys, keys, strict=True)], *rest, **columns)

    text = f"side {side.by}: {', '.join(side.columns)}"
    return graph.Stateless((side.node,), graph.applied(tag, side.node.schema, text), tag, text, frozenset({*side.keys, *side.columns}))


def check_sides(left: Sided, right: Sided) -> None:
    """Refuses keys that cannot be compared."""
    if len(left.keys) != len(right.keys):
        raise DefinitionError(f"join: {left.by} and {right.by} name different numbers of columns; name the same of both")
    for own, other in zip(left.keys, right.keys, strict=True):
        ours, theirs = left.node.schema[own], right.node.schema[other]
        if ours != theirs:
            raise DefinitionError(f"join: {own!r} is {ours} and {other!r} is {theirs}, which are never equal; cast one of them")
