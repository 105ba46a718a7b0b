"""The nodes of operators that take rows one after the other: patterns, deduplications, processors.
They refuse panes, and what could not run for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from millrace import graph, panes
from millrace.errors import DefinitionError
from millrace.graph.build.rows_only import require_rows
from millrace.patterns import Pattern, RowPattern, parse_match_recognize
from millrace.patterns.cep.matcher import Matcher, check_types
from millrace.patterns.cep.select import check_select
from millrace.patterns.sql import require_sqlglot
from millrace.processors import Processor
from millrace.processors import check_processor as checked_outputs
from millrace.values import expressions
from millrace.values.key_hash import hash_series


def build_match(
    source: graph.Node,
    keys: tuple[str, ...],
    pattern: Pattern,
    select: Mapping[str, pl.Expr],
    *,
    unbounded: bool = True,
) -> graph.MatchPattern:
    """The node of a pattern; refuses those that rows cannot answer and, where the stream is `endless`, those
    that cannot run for ever.
    """
    require_rows(source, f"match({pattern})")
    if not isinstance(pattern, Pattern):
        raise DefinitionError(f"match({pattern!r}) is not a pattern; make one with mr.pattern(...)")
    pattern.check(stream=unbounded)
    check_types(source.schema)
    conditions = Matcher(pattern, source.schema, keys).predicates.bits
    expressions.check_elementwise("a condition of a pattern", conditions, source.schema)
    schema = check_select(pattern, select, keys, source.schema)
    return graph.MatchPattern((source,), schema, keys, pattern, dict(select))


def build_timeouts(node: graph.Node) -> graph.SideOutput:
    """The further output of a pattern."""
    if not isinstance(node, graph.MatchPattern):
        raise DefinitionError("timeouts() follows match(): it is what that pattern did not complete in time")
    return graph.SideOutput((node,), node.schema, graph.TIMEOUTS)


def build_match_recognize(
    source: graph.Node, keys: tuple[str, ...], clause: RowPattern | str, *, unbounded: bool = True
) -> graph.MatchRecognize:
    """The node of a row pattern; refuses those that rows cannot answer and, where the stream is `endless`,
    those that cannot run for ever.
    """
    require_sqlglot()
    from millrace.patterns.sql.streams import result_schema

    row_pattern = parse_match_recognize(clause) if isinstance(clause, str) else clause
    require_rows(source, f"match_recognize({row_pattern.text})")
    check_types(source.schema)
    schema = result_schema(row_pattern, source.schema, keys, endless=unbounded)
    return graph.MatchRecognize((source,), schema, keys, row_pattern)


def build_deduplication(
    source: graph.Node, keys: tuple[str, ...], columns: tuple[str, ...], within: int
) -> graph.Deduplication:
    """The node of a deduplication; refuses panes, and columns that rows do not have."""
    call = f"deduplicate({', '.join(map(repr, columns))})"
    require_rows(source, call, takes="rows")
    for column in columns:
        if column not in source.schema:
            raise DefinitionError(f"{call}: {expressions.describe_unknown(column, source.schema)}")
        hash_series(pl.Series([], dtype=source.schema[column]))
    return graph.Deduplication((source,), source.schema, keys, columns, within)


def build_process(
    source: graph.Node, keys: tuple[str, ...], processor: Processor, broadcast: graph.Node | None
) -> graph.Process:
    """The node of a processor; refuses panes, and columns that results have anyway."""
    inputs = (source,) if broadcast is None else (source, broadcast)
    for node in inputs:
        require_rows(node, f"process({processor})")
    system = {"event_time": pl.Int64(), **panes.COLUMNS}
    columns = checked_outputs(processor, keys, frozenset({*system, *graph.TIME_COLUMNS}))
    key_columns = {key: source.schema[key] for key in keys}
    schemas = {
        output: pl.Schema({**key_columns, **output_columns, **system})
        for output, output_columns in columns.items()
    }
    schema = schemas.pop("out")
    return graph.Process(inputs, schema, keys, processor, schemas)
