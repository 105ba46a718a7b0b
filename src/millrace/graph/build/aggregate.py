"""The node of an aggregation, and what is refused: answers that could not be taken back, windows that rows or
panes cannot be put into.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import polars as pl

from millrace import durations, graph, panes
from millrace.aggregates import ORDER, Reduction
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.evictors import Evictor
from millrace.graph.build.arguments import bind_arguments, columns_of
from millrace.graph.identity import identify_evictor
from millrace.topics import SYSTEM_COLUMNS
from millrace.triggers import Trigger, TriggerFn, walk
from millrace.values import expressions
from millrace.values.calls import require_choice
from millrace.windows import Delta, Punctuated, Unaligned, WindowFn


def build_aggregation(
    upstream: graph.Node,
    keys: tuple[str, ...],
    aggregates: Mapping[str, Reduction],
    windowing: graph.Windowing,
) -> graph.Aggregation:
    """Aggregates per key and window."""
    for name, aggregate in aggregates.items():
        _check_aggregate(keys, name, aggregate)
    source, bound = bind_arguments(upstream, aggregates)
    columns = {key: source.schema[key] for key in keys}
    for name, aggregate in bound.items():
        columns[name] = _result_type(source.schema, keys, name, aggregate)
        _check_reproducible(windowing, name, aggregate)
    check_history(upstream, aggregates)
    over_rows = not takes_panes(upstream, windowing)
    _check_windowing(upstream, windowing, over_rows=over_rows)
    schema = pl.Schema({**columns, "event_time": pl.Int64(), **panes.COLUMNS})
    return graph.Aggregation(
        (source,),
        schema,
        keys,
        bound,
        windowing,
        not over_rows and keeps_windows(upstream, windowing),
        over_rows,
        not all(edge.is_append_only for edge in graph.edges(graph.Union((upstream,), upstream.schema))),
    )


def _check_aggregate(keys: tuple[str, ...], name: str, aggregate: Reduction) -> None:
    """Refuses what is not an aggregate, and names that a result already has."""
    if not isinstance(aggregate, Reduction):
        raise DefinitionError(
            f"{name}={aggregate!r} is not an aggregate; use one of millrace.aggregates, such as "
            "aggregates.count()"
        )
    if name in keys or name in SYSTEM_COLUMNS:
        raise DefinitionError(
            f"an aggregate cannot be named {name!r}: the result already has that column; choose another name"
        )


def _result_type(source: pl.Schema, keys: tuple[str, ...], name: str, aggregate: Reduction) -> pl.DataType:
    """The type of what an aggregate answers of such rows."""
    dtype = source[aggregate.column] if aggregate.column else pl.Null()
    aggregate.check(source)
    frame = (
        source.to_frame()
        .with_columns(pl.lit(0).alias(column) for column in ORDER)
        .group_by(*keys)
        .agg(*aggregate.partials(name, dtype))
    )
    return frame.select(aggregate.result(name, dtype)).schema[name]


def _check_reproducible(windowing: graph.Windowing, name: str, aggregate: Reduction) -> None:
    """Refuses answers that cannot be computed again where they would have to be taken back."""
    if not aggregate.reproducible and windowing.accumulation != "accumulating":
        raise DefinitionError(
            f"{name}={aggregate}: accumulation={windowing.accumulation!r} takes back what was shown, but "
            "this answer may come out otherwise when computed again; use accumulation='accumulating', or an "
            "exact aggregate"
        )


def check_history(source: graph.Node, aggregates: Mapping[str, Reduction]) -> None:
    """Refuses to aggregate by how panes came about: a pane that is taken back could not be found again."""
    for edge in graph.edges(graph.Union((source,), source.schema)):
        if edge.is_append_only and not edge.has_panes:
            continue
        earlier = edge.origin.aggregates if isinstance(edge.origin, graph.Aggregation) else {}
        for name, aggregate in earlier.items():
            if not aggregate.reproducible:
                raise DefinitionError(
                    f"{name}={aggregate} may come out otherwise when computed again, so it cannot be taken "
                    "back when a late row corrects it, and nothing can be aggregated over it; leave out "
                    "approx=True, or make it the last aggregation"
                )
        for name, aggregate in aggregates.items():
            for column in columns_of(aggregate) & set(panes.HISTORY_COLUMNS):
                raise DefinitionError(
                    f"{name}={aggregate}: {column!r} says how a pane came about, and changes when it is "
                    "refined; aggregate its values"
                )
        frame = edge.schema.to_frame().drop(panes.HISTORY_COLUMNS)
        for step in edge.steps:
            try:
                frame = step.apply(frame)
            except pl.exceptions.ColumnNotFoundError as error:
                raise DefinitionError(
                    f"{step.text} looks at how panes came about ({', '.join(panes.HISTORY_COLUMNS)}), and "
                    "the panes are aggregated again: what it lets pass could not be taken back; move it "
                    "after the last aggregation"
                ) from error


def _check_windowing(source: graph.Node, windowing: graph.Windowing, *, over_rows: bool) -> None:
    """Refuses windows that the rows cannot be put into, and those that panes cannot."""
    if over_rows:
        _check_columns(windowing, source.schema)
        _check_evicted_by(windowing.evict, source.schema)
        return
    if windowing.accumulation == "discarding":
        raise DefinitionError(
            "panes with accumulation='discarding' are aggregated again, but what changed in panes that are "
            "taken back is not a sum of parts; use accumulation='accumulating' or 'retracting'"
        )
    upstream_windowing, is_kept = windowing_of_panes(source), keeps_windows(source, windowing)
    if not is_kept and not windowing.is_unwindowed:
        _check_bounded(source, windowing)
    if not is_kept and upstream_windowing is not None and upstream_windowing.time != "end":
        raise DefinitionError(
            f"panes at time={upstream_windowing.time!r} are put into windows anew, but that time changes "
            "when they are refined; use time='end'"
        )
    if not (is_kept or windowing.is_unwindowed) and windowing.sliced_window is None:
        raise DefinitionError(
            f"panes that may still be refined are put into {windowing.window} by {windowing.trigger}"
            f"{'' if windowing.evict is None else ' with evict='}, which is possible only for rows; say "
            ".final() before it, for the values that hold in the end, use "
            "windows.fixed() or sliding() with at_watermark(), where late=never() needs lateness=0, or leave "
            "out the second window()"
        )


def _check_bounded(source: graph.Node, windowing: graph.Windowing) -> None:
    """Refuses windows of what may be corrected at any time: none of them would ever be complete."""
    for edge in graph.edges(graph.Union((source,), source.schema)):
        if edge.is_append_only or not isinstance(edge.origin, graph.Operation) or edge.origin.is_bounded:
            continue
        remedy = "say .window(...) before it" if edge.has_panes else "say join(..., ttl='1h')"
        raise DefinitionError(
            f"the results of {edge.origin.describe().title} may be corrected at any time, so no "
            f"{windowing.window} of them would ever be complete; {remedy}"
        )


def takes_panes(source: graph.Node, windowing: graph.Windowing | None = None) -> bool:
    """Whether an aggregation takes what comes as panes of another one, rather than as rows.

    Panes that may be refined come as a changelog. So do those that are shown once, if they keep their window
    or are put into fixed or sliding ones: they need not be judged again. Rows that may be late must be: those
    of a topic, and those that were refused. Beside a changelog they come as rows, and it as panes.
    """
    edges = list(graph.edges(graph.Union((source,), source.schema)))
    if not all(edge.is_append_only for edge in edges):
        return True
    if any(edge.is_judged for edge in edges):
        return False
    fits_panes = windowing is None or windowing_of_panes(source) is windowing or windowing.sliced_window
    return bool(fits_panes) and any(edge.has_panes for edge in edges)


def windowing_of_panes(source: graph.Node) -> graph.Windowing | None:
    """The windowing of the panes that come in, if panes come in."""
    upstream = {
        edge.origin.windowing if isinstance(edge.origin, graph.Aggregation) else None
        for edge in graph.edges(graph.Union((source,), source.schema))
        if isinstance(edge.origin, graph.Operation) and edge.read is None and edge.output == "out"
    }
    return upstream.pop() if len(upstream) == 1 else None


def keeps_windows(source: graph.Node, windowing: graph.Windowing) -> bool:
    """Whether all that comes is panes of this very windowing, each of which has its window."""
    edges = graph.edges(graph.Union((source,), source.schema))
    return windowing_of_panes(source) is windowing and not any(edge.is_judged for edge in edges)


def _check_columns(windowing: graph.Windowing, schema: pl.Schema) -> None:
    """Refuses windows that ask for columns that rows do not have, or of another kind."""
    window = windowing.assigner
    match window:
        case Unaligned(offset=expr):
            expected = "a whole number of milliseconds"
        case Punctuated(expr=expr):
            expected = "true or false"
        case Delta(column=column):
            expr, expected = pl.col(column), "a number"
        case _:
            return
    with graph.explain_misfits(schema, str(window)):
        [dtype] = schema.to_frame().select(expr.alias("asked")).dtypes
    expressions.check_elementwise(str(window), [expr], schema)
    fits = {Unaligned: dtype.is_integer(), Punctuated: dtype == pl.Boolean, Delta: dtype.is_numeric()}[
        type(window)
    ]
    if not fits:
        raise DefinitionError(f"{window} needs {expected}, but that is {dtype}")


def check_lookup_last(source: graph.Node) -> None:
    """Refuses to group panes of which somebody was asked something."""
    if lookup := _find_pane_lookup(source):
        raise DefinitionError(
            f"{lookup.text} follows an aggregation, and its panes are grouped again: when a late row "
            "corrects them, the answer may have changed, and what was counted could not be taken back; ask "
            "before the first aggregation, or after the last"
        )


def check_lookup_once(source: graph.Node, windowing: graph.Windowing | None) -> None:
    """Refuses to ask of panes that leave the job and are taken back later."""
    lookup = _find_pane_lookup(source)
    if lookup is None:
        return
    if windowing is not None and windowing.accumulation != "accumulating":
        raise DefinitionError(
            f"{lookup.text} of panes that are taken back: the answer may have changed by then; use "
            "accumulation='accumulating', or ask before the aggregation"
        )
    for edge in graph.edges(graph.Union((source,), source.schema)):
        origin = edge.origin
        if isinstance(origin, graph.Operation) and not (edge.is_append_only or edge.has_panes):
            raise DefinitionError(
                f"{lookup.text} of rows that are taken back: the answer may have changed by then; ask before "
                f"{origin.describe().title}, or say .final() behind it"
            )


def _find_pane_lookup(node: graph.Node) -> graph.Lookup | None:
    """A lookup by panes on the way to `node`, if there is one."""
    found = (
        step
        for edge in graph.edges(graph.Union((node,), node.schema))
        if not edge.is_append_only
        for step in edge.steps
    )
    return next((step for step in found if isinstance(step, graph.Lookup)), None)


def make_windowing(
    window: WindowFn,
    trigger: Trigger,
    lateness: Duration,
    accumulation: panes.Accumulation,
    on_time: panes.OnTime,
    closing: panes.Closing,
    time: panes.PaneTime,
    evict: Evictor | None,
) -> graph.Windowing:
    """Where, when and how; refuses what is not a window, a trigger or one of the choices."""
    if not isinstance(window, WindowFn):
        raise DefinitionError(
            f"window({window!r}) is not a window; use one of millrace.windows, such as windows.fixed('1m')"
        )
    require_choice("accumulation", accumulation, get_args(panes.Accumulation))
    require_choice("on_time", on_time, get_args(panes.OnTime))
    require_choice("closing", closing, get_args(panes.Closing))
    require_choice("time", time, get_args(panes.PaneTime))
    lateness_ms = durations.parse_non_negative(lateness, name="lateness")
    _check_evictor(evict)
    windowing = graph.Windowing(window, trigger, lateness_ms, accumulation, on_time, closing, time, evict)
    _check_own_triggers(windowing)
    if windowing.is_ordered and windowing not in [
        graph.Windowing(window, accumulation=accumulation, closing=default_closing)
        for default_closing in ("none", "if_new")
    ]:
        raise DefinitionError(
            f"window({window}) cuts windows by the rows themselves, each shown once when it is full; "
            "leave out trigger, lateness, on_time, closing, time and evict"
        )
    return windowing


def _check_evictor(evict: object) -> None:
    """Refuses what is not an evictor."""
    if evict is not None and not isinstance(evict, Evictor):
        raise DefinitionError(
            f"evict={evict!r} is not an evictor; use one of millrace.evictors, such as evictors.last(10)"
        )
    if evict is not None:
        identify_evictor(evict)


def _check_evicted_by(evict: Evictor | None, schema: pl.Schema) -> None:
    """Refuses a column that rows do not have, or that is not a number."""
    for column in () if evict is None else evict.columns or ():
        if column not in schema:
            raise DefinitionError(f"evict={evict}: {expressions.describe_unknown(column, schema)}")
        if not schema[column].is_numeric():
            raise DefinitionError(f"evict={evict} needs numbers, but {column!r} is {schema[column]}")


def _check_own_triggers(windowing: graph.Windowing) -> None:
    """Refuses triggers that could not say what they keep of windows that have become one."""
    for trigger in walk(windowing.trigger):
        if windowing.window.merging and isinstance(trigger, TriggerFn) and not trigger.merges:
            raise DefinitionError(
                f"{type(trigger).__name__} has no on_merge(self, parts, ctx), and {windowing.window} merge: "
                "what it keeps of two windows that become one would be lost; add that method"
            )
