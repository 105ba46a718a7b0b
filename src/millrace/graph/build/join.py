"""Joins within windows: both sides become one stream, are collected by key, and each pane's pairs are shown
row by row.

So a join has the windows, triggers, lateness and corrections of an aggregation, and over panes it takes back
what they take back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import polars as pl

from millrace import aggregates, durations, graph, panes
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.graph.build.aggregate import build_aggregation
from millrace.graph.build.rows_only import require_rows
from millrace.topics import SYSTEM_COLUMNS
from millrace.values.columns import LEFT_ROW, PRESENT, RIGHT_ROW

JoinType: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti"]
_WITH_PARTNERS = ("inner", "left", "right", "full")
"""The kinds that show columns of both sides."""
SideNames: TypeAlias = tuple[str, str]

SIDE_COLUMNS: SideNames = (LEFT_ROW, RIGHT_ROW)
"""The columns that hold what is known of each side; the other is null."""


@dataclass(frozen=True)
class JoinSide:
    """One side of a join: rows or panes, their key, and the columns they bring."""

    node: graph.Node
    keys: tuple[str, ...]
    windowing: graph.Windowing | None

    @property
    def columns(self) -> list[str]:
        """The columns besides the key and those of millrace's own."""
        return [
            column for column in self.node.schema if column not in self.keys and column not in SYSTEM_COLUMNS
        ]

    @property
    def text(self) -> str:
        """As a user would write it."""
        return f"group_by({', '.join(map(repr, self.keys))})"


@dataclass(frozen=True)
class TableSide(JoinSide):
    """The side that is a table: of each key the newest row holds."""

    deleted: pl.Expr | None

    @property
    def is_present(self) -> pl.Expr:
        """Whether a row says that there is something."""
        return pl.lit(value=True) if self.deleted is None else ~self.deleted.fill_null(value=False)


@dataclass(frozen=True, eq=False)
class RowJoin(graph.Operation):
    """Rows of two sides with the same key, each result shown once:
    what joins by the times of rows have in common.
    """

    how: str
    column_names: tuple[Mapping[str, str], Mapping[str, str]]
    """For each side its columns, and what they are called in the result."""
    output_exprs: tuple[pl.Expr, ...]
    """The same as expressions."""
    columns: tuple[tuple[str, ...], ...]
    """For each side its columns, in the order in which rows of it are kept."""

    verb = "join"

    def settings(self) -> graph.Identity:
        """Which rows are shown, and the columns that are kept of each side."""
        return {"how": self.how, "columns": [list(columns) for columns in self.columns]}

    def _answers(self) -> Iterator[tuple[str, str]]:
        yield "what", f"{', '.join(name for names in self.column_names for name in names.values())} {self.by}"
        yield "where", self._where
        yield "when", self._when
        yield "lateness", graph.BEHIND

    @property
    @abstractmethod
    def _where(self) -> str: ...

    @property
    @abstractmethod
    def _when(self) -> str: ...


@dataclass(frozen=True, eq=False)
class TableJoin(RowJoin):
    """Rows beside what a table held for their key at their time."""

    table_keys: tuple[str, ...]

    kind = "table_join"

    def settings(self) -> graph.Identity:
        """Also the key of the table."""
        return {**super().settings(), "table_keys": list(self.table_keys)}

    @property
    def emits_in_order(self) -> bool:
        """Rows go on in the order in which they came."""
        return True

    @property
    def _where(self) -> str:
        columns = ", ".join(column for side in self.columns for column in side)
        return (
            f"{self.how} join with group_by({', '.join(map(repr, self.table_keys))}), as "
            f"of event time: {columns}"
        )

    @property
    def _when(self) -> str:
        return graph.IN_ORDER


@dataclass(frozen=True, eq=False)
class IntervalJoin(RowJoin):
    """Rows of two sides whose times are not far apart: the windows are pairs."""

    lower: int
    upper: int
    """The right row's time less the left one's is in `[lower, upper)`."""

    kind = "interval_join"

    def settings(self) -> graph.Identity:
        """Also the bounds."""
        return {**super().settings(), "lower": self.lower, "upper": self.upper}

    @property
    def is_outer(self) -> bool:
        """Whether rows without a partner are shown."""
        return self.how != "inner"

    @property
    def output_delay(self) -> int:
        """A row without a partner is shown late, by as much as its partner might have been."""
        waits = {"left": [self.upper], "right": [1 - self.lower], "full": [self.upper, 1 - self.lower]}
        return max([0, *waits.get(self.how, [])])

    @property
    def _where(self) -> str:
        lower, upper = durations.format_millis(self.lower), durations.format_millis(self.upper)
        return (
            f"{self.how} join, the other {lower} to {upper} after: {'; '.join(map(', '.join, self.columns))}"
        )

    @property
    def _when(self) -> str:
        waiting = "; a row without a partner, when none can come" if self.is_outer else ""
        return f"as soon as both rows are there{waiting}"


def build_cogroup(left: JoinSide, right: JoinSide, side_names: SideNames) -> graph.Aggregation:
    """For each key and window the rows of both sides, as two lists."""
    for side, name in zip((left, right), side_names, strict=True):
        if not side.columns:
            raise DefinitionError(
                f"cogroup: {side.text} leaves no columns for {name!r}; keep one besides the key"
            )
        if name in left.keys or name in SYSTEM_COLUMNS:
            raise DefinitionError(
                f"cogroup: a list cannot be named {name!r}: the result already has that column; say "
                "names=(..., ...)"
            )
    if side_names[0] == side_names[1]:
        raise DefinitionError(f"cogroup: names={side_names!r} must differ")
    windowing = _common_windowing(left, right, "cogroup")
    return _collect_sides(left, right, side_names, windowing, with_presence=False)


def build_join(
    left: JoinSide, right: JoinSide, within: tuple[Duration, Duration] | None, how: JoinType, suffix: str
) -> graph.Node:
    """The node of a join: with a table, by the times of rows, or within windows."""
    if isinstance(right, TableSide):
        return build_table_join(left, right, how, suffix)
    return (
        build_window_join(left, right, how, suffix)
        if within is None
        else build_interval_join(left, right, within, how, suffix)
    )


def build_window_join(left: JoinSide, right: JoinSide, how: JoinType, suffix: str) -> graph.PaneRows:
    """The pairs of rows of both sides with the same key in the same window,
    and with `how` those without a partner.
    """
    check_join_type(how)
    windowing = _common_windowing(left, right, "join")
    if windowing.accumulation == "discarding":
        raise DefinitionError(
            "join: accumulation='discarding' has no meaning, as the rows of a join are told one by one "
            "anyway; leave it out"
        )
    collected = _collect_sides(left, right, SIDE_COLUMNS, windowing, with_presence=True)
    names = result_names(left, right, suffix)
    apply = make_pairing(left.keys, how, names)
    text = f"{how} join by {', '.join(left.keys)}"
    schema = graph.derive_schema(apply, collected.schema, text)
    identity = {"kind": "join_rows", "how": how, "keys": list(left.keys)}
    return graph.PaneRows((collected,), schema, apply, text, internal_identity=identity, side_names=names)


def check_join_type(how: str, possible: Sequence[str] = _WITH_PARTNERS) -> None:
    """Refuses a kind of join that there is not, or not here."""
    if how in possible:
        return
    if how in get_args(JoinType):
        raise DefinitionError(
            f"how={how!r} is for regular joins, which need no window: say ttl=..., or leave out window() and "
            "within="
        )
    raise DefinitionError(f"how={how!r} is unknown; use one of {', '.join(map(repr, possible))}")


def result_names(left: JoinSide, right: JoinSide, suffix: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the columns of each side are called in the result:
    those of the right get the suffix where the left has the name.
    """
    left_columns = {*left.keys, *left.columns}
    left_names = {column: column for column in left.columns}
    right_names = {
        column: f"{column}{suffix}" if column in left_columns else column for column in right.columns
    }
    names = [*left.keys, *left_names.values(), *right_names.values()]
    if duplicates := sorted({name for name in names if names.count(name) > 1 or name in SYSTEM_COLUMNS}):
        raise DefinitionError(
            f"join: the result would have {duplicates[0]!r} twice; rename it on one side, or choose another "
            f"suffix than {suffix!r}"
        )
    return left_names, right_names


def make_pairing(
    keys: tuple[str, ...], how: JoinType, names: tuple[dict[str, str], dict[str, str]]
) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """What makes rows of panes that hold both sides as lists. A null key has no partner, as in SQL."""
    left, right = SIDE_COLUMNS
    has_key = pl.all_horizontal(pl.col(key).is_not_null() for key in keys)
    has_both = has_key & (pl.col(left).list.len() > 0) & (pl.col(right).list.len() > 0)
    fields = side_columns(names)

    def pairs(frame: pl.DataFrame) -> pl.DataFrame:
        rest = [column for column in frame.columns if column not in keys and column not in SIDE_COLUMNS]
        parts = [
            frame.filter(has_both).explode(left, empty_as_null=False).explode(right, empty_as_null=False)
        ]
        unpaired = frame.filter(~has_both)
        for side, other, wanted in ((left, right, ("left", "full")), (right, left, ("right", "full"))):
            if how in wanted:
                unpaired_rows = unpaired.explode(side, empty_as_null=False).with_columns(
                    pl.lit(None, frame.schema[other].inner).alias(other)  # type: ignore[attr-defined] # a list
                )
                parts.append(unpaired_rows.select(frame.columns))
        return pl.concat(parts).select(*keys, *fields, *rest)

    return pairs


def _common_windowing(left: JoinSide, right: JoinSide, call: str) -> graph.Windowing:
    if left.windowing is None:
        raise DefinitionError(
            f"{call} without a window would wait for ever for partners; say .window(...) first"
        )
    if right.windowing is not None and right.windowing != left.windowing:
        raise DefinitionError(
            f"{call}: one side lies in {left.windowing.window} and the other in {right.windowing.window}; "
            "window both alike"
        )
    return left.windowing


def _collect_sides(
    left: JoinSide, right: JoinSide, names: SideNames, windowing: graph.Windowing, *, with_presence: bool
) -> graph.Aggregation:
    """Both sides as one stream, collected by key."""
    node = union_sides(left, right, names, with_presence=with_presence)
    sides = build_aggregation(node, left.keys, {name: aggregates.collect(name) for name in names}, windowing)
    if sides.evict is not None:
        raise DefinitionError(
            f"evict={sides.evict} would take the rows of both sides for those of one stream; leave it out of "
            "the window of a join, and aggregate with it before or after"
        )
    return sides


def union_sides(
    left: JoinSide, right: JoinSide, names: SideNames = SIDE_COLUMNS, *, with_presence: bool = True
) -> graph.Union:
    """Both sides as one stream: the key under common names, and each side's columns as one,
    null in rows of the other.
    """
    check_sides(left, right)
    structs = [_side_struct(side, with_presence=with_presence) for side in (left, right)]
    types = [
        side.node.schema.to_frame().select(struct.alias("s")).schema["s"]
        for side, struct in zip((left, right), structs, strict=True)
    ]
    nulls = [pl.lit(None, dtype) for dtype in types]
    left_rows = _tag_side(left, left.keys, dict(zip(names, (structs[0], nulls[1]), strict=True)))
    right_rows = _tag_side(right, left.keys, dict(zip(names, (nulls[0], structs[1]), strict=True)))
    return graph.Union((left_rows, right_rows), left_rows.schema)


def build_interval_join(
    left: JoinSide, right: JoinSide, within: tuple[Duration, Duration], how: JoinType, suffix: str
) -> IntervalJoin:
    """Pairs of rows with the same key, the right one's time less the left one's in `[lower, upper)`."""
    check_join_type(how)
    for side in (left, right):
        require_rows(side.node, f"{side.text}.join(within=...)", takes="rows")
    lower, upper = (durations.parse_bounded(bound, name="within") for bound in within)
    if lower >= upper:
        raise DefinitionError(
            f"within={within!r} is empty: the second bound is not reached; write "
            "('0s', '1ms') for equal times"
        )
    node = union_sides(left, right)
    names = result_names(left, right, suffix)
    return IntervalJoin(
        (node,),
        result_schema(node, left.keys, names),
        left.keys,
        how,
        names,
        tuple(side_columns(names)),
        tuple(tuple(side.columns) for side in (left, right)),
        lower,
        upper,
    )


def build_table_join(left: JoinSide, table: TableSide, how: JoinType, suffix: str) -> TableJoin:
    """Each row beside the version of the table that held at its event time."""
    if how not in ("inner", "left"):
        raise DefinitionError(
            f"how={how!r}: the rows of a stream are joined with a table, whose rows have no end; use "
            "'inner' or 'left'"
        )
    for side in (left, table):
        require_rows(side.node, f"{side.text}.join(table)", takes="rows")
    node, names = union_sides(left, table), result_names(left, table, suffix)
    return TableJoin(
        (node,),
        result_schema(node, left.keys, names),
        left.keys,
        how,
        names,
        tuple(side_columns(names)),
        tuple(tuple(side.columns) for side in (left, table)),
        table.keys,
    )


def side_columns(names: tuple[Mapping[str, str], Mapping[str, str]]) -> list[pl.Expr]:
    """The columns of the result, read off the two sides."""
    return [
        pl.col(side).struct.field(column).alias(name)
        for side, columns in zip(SIDE_COLUMNS, names, strict=True)
        for column, name in columns.items()
    ]


def result_schema(
    node: graph.Node, keys: tuple[str, ...], names: tuple[Mapping[str, str], Mapping[str, str]]
) -> pl.Schema:
    """The columns of a result that is shown once."""
    result = node.schema.to_frame().select(*keys, *side_columns(names)).schema
    return pl.Schema({**result, "event_time": pl.Int64(), **panes.COLUMNS})


def _side_struct(side: JoinSide, *, with_presence: bool) -> pl.Expr:
    is_there = side.is_present if isinstance(side, TableSide) else pl.lit(value=True)
    return pl.struct(*([is_there.alias(PRESENT)] if with_presence else []), *side.columns)


def _tag_side(side: JoinSide, keys: tuple[str, ...], columns: dict[str, pl.Expr]) -> graph.Stateless:
    """A side's rows with the key under common names and the rest in one column."""

    def tag(frame: pl.DataFrame) -> pl.DataFrame:
        rest = [
            column for column in frame.columns if column in SYSTEM_COLUMNS or column in graph.INTERNAL_COLUMNS
        ]
        return frame.select(
            *[pl.col(own).alias(key) for own, key in zip(side.keys, keys, strict=True)], *rest, **columns
        )

    text = f"side {side.text}: {', '.join(side.columns)}"
    return graph.Stateless(
        (side.node,),
        graph.derive_schema(tag, side.node.schema, text),
        tag,
        text,
        frozenset({*side.keys, *side.columns}),
        internal_identity={"kind": "join_side", "keys": list(side.keys), "columns": side.columns},
    )


def check_sides(left: JoinSide, right: JoinSide) -> None:
    """Refuses keys that cannot be compared."""
    if len(left.keys) != len(right.keys):
        raise DefinitionError(
            f"join: {left.text} and {right.text} name different numbers of columns; name the same of both"
        )
    for left_key, right_key in zip(left.keys, right.keys, strict=True):
        left_type, right_type = left.node.schema[left_key], right.node.schema[right_key]
        if left_type != right_type:
            raise DefinitionError(
                f"join: {left_key!r} is {left_type} and {right_key!r} is {right_type}, which are never "
                "equal; cast one of them"
            )
