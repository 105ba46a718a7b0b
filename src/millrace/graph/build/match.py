"""The nodes of operators that take rows one after the other: patterns, deduplications, processors. They refuse panes, and what could not run for ever."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from millrace import graph, panes
from millrace.errors import DefinitionError
from millrace.patterns import Pattern, RowPattern, parse_match_recognize
from millrace.patterns.cep.matcher import Matcher, check_types
from millrace.patterns.cep.select import checked
from millrace.patterns.sql import need_sqlglot
from millrace.processors import Processor
from millrace.processors import checked as checked_outputs
from millrace.values import expressions
from millrace.values.key_hash import hash_series


def match(
    source: graph.Node,
    keys: tuple[str, ...],
    pattern: Pattern,
    select: Mapping[str, pl.Expr],
    *,
    endless: bool = True,
) -> graph.Match:
    """The node of a pattern; refuses those that rows cannot answer and, where the stream is `endless`, those that cannot run for ever."""
    _refuse_panes(source, f"match({pattern})")
    if not isinstance(pattern, Pattern):
        raise DefinitionError(f"match({pattern!r}) is no pattern; make one with mr.pattern(...)")
    pattern.checked(stream=endless)
    check_types(source.schema)
    conditions = Matcher(pattern, source.schema, keys).tests.bits
    expressions.check_elementwise("a condition of a pattern", conditions, source.schema)
    schema = checked(pattern, select, keys, source.schema)
    said = f"{pattern}, showing {', '.join(f'{name} = {expr}' for name, expr in select.items())}"
    return graph.Match(
        (source,),
        schema,
        keys,
        {},
        graph.Windowing(graph.Sequences(said)),
        same_window=False,
        pattern=pattern,
        select=dict(select),
    )


def timeouts(node: graph.Node) -> graph.Side:
    """The further output of a pattern."""
    if not isinstance(node, graph.Match):
        raise DefinitionError("timeouts() follows match(): it is what that pattern did not complete in time")
    return graph.Side((node,), node.schema, graph.TIMEOUTS)


def match_recognize(
    source: graph.Node, keys: tuple[str, ...], said: RowPattern | str, *, endless: bool = True
) -> graph.MatchRows:
    """The node of a row pattern; refuses those that rows cannot answer and, where the stream is `endless`, those that cannot run for ever."""
    need_sqlglot()
    from millrace.patterns.sql.streams import shown_schema

    rows = parse_match_recognize(said) if isinstance(said, str) else said
    _refuse_panes(source, f"match_recognize({rows.text})")
    check_types(source.schema)
    schema = shown_schema(rows, source.schema, keys, endless=endless)
    return graph.MatchRows(
        (source,), schema, keys, {}, graph.Windowing(graph.Sequences(str(rows))), same_window=False, rows=rows
    )


def _refuse_panes(source: graph.Node, what: str) -> None:
    for edge in graph.edges(graph.Union((source,), source.schema)):
        if edge.read is None:
            raise DefinitionError(
                f"{what} takes rows of topics in order, but here come panes of an aggregation, which may still be refined; "
                "write them to a topic and match that"
            )


def deduplication(
    source: graph.Node, keys: tuple[str, ...], columns: tuple[str, ...], within: int
) -> graph.Deduplication:
    """The node of a deduplication; refuses panes, and columns that rows do not have."""
    said = f"deduplicate({', '.join(map(repr, columns))})"
    for edge in graph.edges(graph.Union((source,), source.schema)):
        if edge.read is None:
            raise DefinitionError(
                f"{said} takes rows of topics, but here come panes of an aggregation, each of which is there once; deduplicate before it"
            )
    for column in columns:
        if column not in source.schema:
            raise DefinitionError(
                f"{said}: there is no column {column!r}; there are {', '.join(source.schema)}"
            )
        hash_series(pl.Series([], dtype=source.schema[column]))
    rows = graph.Windowing(
        graph.Sequences(f"the first of those with equal {', '.join([*keys, *columns])} within {within} ms")
    )
    return graph.Deduplication(
        (source,), source.schema, keys, {}, rows, same_window=False, columns=columns, within=within
    )


def process(
    source: graph.Node, keys: tuple[str, ...], processor: Processor, broadcast: graph.Node | None
) -> graph.Process:
    """The node of a processor; refuses panes, and columns that results have anyway."""
    inputs = (source,) if broadcast is None else (source, broadcast)
    for edge in (edge for one in inputs for edge in graph.edges(graph.Union((one,), one.schema))):
        if edge.read is None:
            raise DefinitionError(
                f"process({processor}) takes rows of topics in order, but here come panes of an aggregation, which may still be refined; "
                "write them to a topic and process that"
            )
    system = {"event_time": pl.Int64(), **panes.COLUMNS}
    columns = checked_outputs(processor, keys, frozenset({*system, *graph.TIMES}))
    named = {key: source.schema[key] for key in keys}
    ports = {port: pl.Schema({**named, **own, **system}) for port, own in columns.items()}
    schema = ports.pop("out")
    return graph.Process(
        inputs,
        schema,
        keys,
        {},
        graph.Windowing(graph.Sequences(repr(processor))),
        same_window=False,
        processor=processor,
        ports=ports,
    )
