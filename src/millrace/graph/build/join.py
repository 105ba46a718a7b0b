"""Joins within windows: both sides become one stream, are collected by key, and each pane's pairs are told row by row.

So a join has the windows, triggers, lateness and corrections of an aggregation, and over panes it takes back what they take back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import polars as pl

from millrace import aggregates, durations, graph, panes
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.graph.build.aggregate import aggregation
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


@dataclass(frozen=True)
class TableSide(Sided):
    """The side that is a table: of each key the newest row holds."""

    deleted: pl.Expr | None

    @property
    def there(self) -> pl.Expr:
        """Whether a row says that there is something."""
        return pl.lit(value=True) if self.deleted is None else ~self.deleted.fill_null(value=False)


@dataclass(frozen=True, eq=False)
class TableJoin(graph.Operation):
    """Rows beside what a table held for their key at their time, each shown once."""

    how: str
    names: tuple[Mapping[str, str], Mapping[str, str]]
    fields: tuple[pl.Expr, ...]


@dataclass(frozen=True, eq=False)
class IntervalJoin(graph.Operation):
    """Rows of two sides with the same key whose times are not far apart: the windows are pairs, each shown once."""

    how: str
    lower: int
    upper: int
    """The right row's time less the left one's is in `[lower, upper)`."""
    names: tuple[Mapping[str, str], Mapping[str, str]]
    """For each side its columns, and what they are called in the result."""
    fields: tuple[pl.Expr, ...]
    """The same as expressions."""

    @property
    def outer(self) -> bool:
        """Whether rows without a partner are shown."""
        return self.how != "inner"

    @property
    def hold(self) -> int:
        """How far behind the watermark a row without a partner may still be shown: what follows must wait as long."""
        waits = {"left": [self.upper], "right": [1 - self.lower], "full": [self.upper, 1 - self.lower]}
        return max([0, *waits.get(self.how, [])])


def cogrouped(left: Sided, right: Sided, names: Names) -> graph.Aggregation:
    """For each key and window the rows of both sides, as two lists."""
    for side, name in zip((left, right), names, strict=True):
        if not side.columns:
            raise DefinitionError(
                f"cogroup: {side.by} leaves no columns for {name!r}; keep one besides the key"
            )
        if name in left.keys or name in SYSTEM:
            raise DefinitionError(
                f"cogroup: a list cannot be named {name!r}: the result already has that column; say names=(..., ...)"
            )
    if names[0] == names[1]:
        raise DefinitionError(f"cogroup: names={names!r} must differ")
    windowing = _windowing(left, right, "cogroup")
    return _collected(left, right, names, windowing, there=False)


def join(
    left: Sided, right: Sided, within: tuple[Duration, Duration] | None, how: How, suffix: str
) -> graph.Node:
    """The node of a join: with a table, by the times of rows, or within windows."""
    if isinstance(right, TableSide):
        return table_joined(left, right, how, suffix)
    return (
        joined(left, right, how, suffix)
        if within is None
        else interval_joined(left, right, within, how, suffix)
    )


def joined(left: Sided, right: Sided, how: How, suffix: str) -> graph.Pairs:
    """The pairs of rows of both sides with the same key in the same window, and with `how` those without a partner."""
    check_how(how)
    windowing = _windowing(left, right, "join")
    if windowing.output == "delta":
        raise DefinitionError(
            "join: output='delta' has no meaning, as the rows of a join are told one by one anyway; leave it out"
        )
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


def pairing(
    keys: tuple[str, ...], how: How, names: tuple[dict[str, str], dict[str, str]]
) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """What makes rows of panes that hold both sides as lists. A null key has no partner, as in SQL."""
    left, right = SIDES
    known = pl.all_horizontal(pl.col(key).is_not_null() for key in keys)
    both = known & (pl.col(left).list.len() > 0) & (pl.col(right).list.len() > 0)
    fields = side_fields(names)

    def pairs(frame: pl.DataFrame) -> pl.DataFrame:
        rest = [column for column in frame.columns if column not in keys and column not in SIDES]
        parts = [frame.filter(both).explode(left, empty_as_null=False).explode(right, empty_as_null=False)]
        lonely = frame.filter(~both)
        for side, other, wanted in ((left, right, ("left", "full")), (right, left, ("right", "full"))):
            if how in wanted:
                alone = lonely.explode(side, empty_as_null=False).with_columns(
                    pl.lit(None, frame.schema[other].inner).alias(other)  # type: ignore[attr-defined] # a list
                )
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


def _collected(
    left: Sided, right: Sided, names: Names, windowing: graph.Windowing, *, there: bool
) -> graph.Aggregation:
    """Both sides as one stream, collected by key."""
    node = together(left, right, names, there=there)
    return aggregation(node, left.keys, {name: aggregates.collect(name) for name in names}, windowing)


def together(left: Sided, right: Sided, names: Names = SIDES, *, there: bool = True) -> graph.Union:
    """Both sides as one stream: the key under common names, and each side's columns as one, null in rows of the other."""
    check_sides(left, right)
    structs = [_struct(side, there=there) for side in (left, right)]
    types = [
        side.node.schema.to_frame().select(struct.alias("s")).schema["s"]
        for side, struct in zip((left, right), structs, strict=True)
    ]
    nothing = [pl.lit(None, dtype) for dtype in types]
    ours = _tagged(left, left.keys, dict(zip(names, (structs[0], nothing[1]), strict=True)))
    theirs = _tagged(right, left.keys, dict(zip(names, (nothing[0], structs[1]), strict=True)))
    return graph.Union((ours, theirs), ours.schema)


def interval_joined(
    left: Sided, right: Sided, within: tuple[Duration, Duration], how: How, suffix: str
) -> IntervalJoin:
    """Pairs of rows with the same key, the right one's time less the left one's in `[lower, upper)`."""
    check_how(how)
    check_rows((left, right), "join(within=...)")
    lower, upper = (durations.within(bound, name="within") for bound in within)
    if lower >= upper:
        raise DefinitionError(
            f"within={within!r} is empty: the second bound is not reached; write ('0s', '1ms') for equal times"
        )
    node = together(left, right)
    names = out_names(left, right, suffix)
    brings = "; ".join(", ".join(side.columns) for side in (left, right))
    said = f"{how} join, the other {durations.text(lower)} to {durations.text(upper)} after: {brings}"
    windowing = graph.Windowing(graph.Sequences(said))
    schema = result_schema(node, left.keys, names)
    return IntervalJoin(
        (node,),
        schema,
        left.keys,
        {},
        windowing,
        False,
        how=how,
        lower=lower,
        upper=upper,
        names=names,
        fields=tuple(side_fields(names)),
    )


def table_joined(left: Sided, table: TableSide, how: How, suffix: str) -> TableJoin:
    """Each row beside the version of the table that held at its event time."""
    if how not in ("inner", "left"):
        raise DefinitionError(
            f"how={how!r}: the rows of a stream are joined with a table, whose rows have no end; use 'inner' or 'left'"
        )
    check_rows((left, table), "join(table)")
    node, names = together(left, table), out_names(left, table, suffix)
    windowing = graph.Windowing(
        graph.Sequences(
            f"{how} join with {table.by}, as of event time: {', '.join((*left.columns, *table.columns))}"
        )
    )
    schema = result_schema(node, left.keys, names)
    return TableJoin(
        (node,),
        schema,
        left.keys,
        {},
        windowing,
        False,
        how=how,
        names=names,
        fields=tuple(side_fields(names)),
    )


def check_rows(sides: Sequence[Sided], what: str) -> None:
    """Refuses panes, which may still be refined."""
    for side in sides:
        for edge in graph.edges(graph.Union((side.node,), side.node.schema)):
            if edge.read is None:
                raise DefinitionError(
                    f"{what} takes rows of topics, but {side.by} groups panes, which may still be refined; write them to a topic and read that"
                )


def side_fields(names: tuple[Mapping[str, str], Mapping[str, str]]) -> list[pl.Expr]:
    """The columns of the result, read off the two sides."""
    return [
        pl.col(side).struct.field(c).alias(name)
        for side, named in zip(SIDES, names, strict=True)
        for c, name in named.items()
    ]


def result_schema(
    node: graph.Node, keys: tuple[str, ...], names: tuple[Mapping[str, str], Mapping[str, str]]
) -> pl.Schema:
    """The columns of a result that is shown once."""
    made = node.schema.to_frame().select(*keys, *side_fields(names)).schema
    return pl.Schema({**made, "event_time": pl.Int64(), **panes.COLUMNS})


def _struct(side: Sided, *, there: bool) -> pl.Expr:
    is_there = side.there if isinstance(side, TableSide) else pl.lit(value=True)
    return pl.struct(*([is_there.alias(THERE)] if there else []), *side.columns)


def _tagged(side: Sided, keys: tuple[str, ...], columns: dict[str, pl.Expr]) -> graph.Stateless:
    """A side's rows with the key under common names and the rest in one column."""

    def tag(frame: pl.DataFrame) -> pl.DataFrame:
        rest = [c for c in frame.columns if c in SYSTEM or c in graph.INTERNAL]
        return frame.select(
            *[pl.col(own).alias(key) for own, key in zip(side.keys, keys, strict=True)], *rest, **columns
        )

    text = f"side {side.by}: {', '.join(side.columns)}"
    return graph.Stateless(
        (side.node,),
        graph.applied(tag, side.node.schema, text),
        tag,
        text,
        frozenset({*side.keys, *side.columns}),
    )


def check_sides(left: Sided, right: Sided) -> None:
    """Refuses keys that cannot be compared."""
    if len(left.keys) != len(right.keys):
        raise DefinitionError(
            f"join: {left.by} and {right.by} name different numbers of columns; name the same of both"
        )
    for own, other in zip(left.keys, right.keys, strict=True):
        ours, theirs = left.node.schema[own], right.node.schema[other]
        if ours != theirs:
            raise DefinitionError(
                f"join: {own!r} is {ours} and {other!r} is {theirs}, which are never equal; cast one of them"
            )
