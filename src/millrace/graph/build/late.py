"""The node of `late()`: the rows that an operation refused, as their user knows them."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from millrace import graph
from millrace.errors import DefinitionError
from millrace.graph.build.join import SIDE_COLUMNS, RowJoin
from millrace.graph.build.rules import MatchRules
from millrace.graph.build.stateless import drop_constant_key
from millrace.values.columns import ALL_ROWS, RIGHT_SUFFIX

SIDE = "side"
"""Column of late rows of a join: whether the left or the right row was late."""
PARTS_OF_OPERATIONS = (graph.PaneRows, graph.SingleGroup)
"""Steps that belong to the operation before them: its name, and the rows that it refused,
are asked for behind them.
"""


def build_late(source: graph.Node) -> graph.Node:
    """The rows that the last operation refused; refuses what never refuses any."""
    node, side_names = source, None
    while isinstance(node, PARTS_OF_OPERATIONS):
        side_names = node.side_names if isinstance(node, graph.PaneRows) else side_names
        node = node.inputs[0]
    if not isinstance(node, graph.Operation):
        raise DefinitionError(
            "late() follows an aggregation or another operation, whose refused rows it gives; say it right "
            "behind that"
        )
    if not any(graph.comes_as_rows(edge, node) for edge in graph.edges(node)):
        raise DefinitionError(
            "late() of a later aggregation is always empty: panes between stages are never dropped; ask the "
            "first one"
        )
    late: graph.Node = graph.Late(
        (node,), pl.Schema({**_columns_of_rows(node), "reason": pl.String(), "missed": pl.Int64()})
    )
    if isinstance(node, RowJoin):
        side_names = _names_of(node)
    if side_names is not None:
        late = _show_sides(late, node.keys, side_names)
    return drop_constant_key(late) if ALL_ROWS in late.schema else late


def _columns_of_rows(node: graph.Operation) -> pl.Schema:
    """The columns with which rows come to an operation, without those that it adds for itself."""
    if isinstance(node, MatchRules):
        return node.row_schema
    rows = node.inputs[0]
    return rows.inputs[0].schema if isinstance(rows, graph.Arguments) else rows.schema


def _names_of(join: RowJoin) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What the columns of each side are called; those that the result does not show, by the usual suffix."""
    left, right = join.column_names
    taken = {*join.keys, *left.values()}
    hidden = {name: f"{name}{RIGHT_SUFFIX}" if name in taken else name for name in join.columns[1]}
    return left, {**hidden, **right}


def _show_sides(
    late: graph.Node, keys: tuple[str, ...], names: tuple[Mapping[str, str], Mapping[str, str]]
) -> graph.Node:
    """Late rows of a join with the columns of both sides, of which those of the other side are null."""
    shown = [name for columns in names for name in columns.values()]
    if SIDE in (*keys, *shown):
        raise DefinitionError(
            f"late() of a join says in the column {SIDE!r} which side was late, but the rows have that "
            "column; rename it before the join"
        )
    is_side = [pl.col(side).is_not_null() for side in SIDE_COLUMNS]
    side = pl.when(is_side[0]).then(pl.lit("left")).when(is_side[1]).then(pl.lit("right")).alias(SIDE)
    fields = [
        pl.col(column).struct.field(name).alias(shown_as)
        for column, columns in zip(SIDE_COLUMNS, names, strict=True)
        for name, shown_as in columns.items()
    ]

    def show(frame: pl.DataFrame) -> pl.DataFrame:
        rest = [name for name in frame.columns if name not in keys and name not in SIDE_COLUMNS]
        return frame.select(*keys, *fields, side, *rest)

    text = f"late rows of both sides: {', '.join(shown)}"
    return graph.Stateless(
        (late,),
        graph.derive_schema(show, late.schema, text),
        show,
        text,
        frozenset(SIDE_COLUMNS),
        frozenset({*shown, SIDE}),
        internal_identity={"kind": "late_sides"},
    )
