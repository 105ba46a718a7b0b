"""What stored state knows a job's parts by: explicit words and numbers, as plain JSON data.

State is found again only if these stay the same. So they name no class, quote no `repr` and hold no sentence:
classes may be renamed and texts rewritten. `tests/graph/test_identities.py` pins each of them; to change one
is to make a new format of state. What a user wrote is known by the user's own words: expressions by their
text, functions and classes by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

import polars as pl

from millrace import aggregates as a
from millrace import evictors as e
from millrace import triggers as t
from millrace import watermarks as m
from millrace import windows as w
from millrace.aggregates import Reduction
from millrace.aggregates.sketches import DistinctSketch, FrequentSketch, QuantilesSketch
from millrace.errors import DefinitionError
from millrace.evictors import Evictor
from millrace.patterns import Pattern, RowPattern
from millrace.patterns.conditions import Condition
from millrace.patterns.parts import PatternPart
from millrace.processors import Processor
from millrace.state import find_states
from millrace.triggers import Trigger
from millrace.watermarks import Watermark
from millrace.windows import WindowFn

Identity: TypeAlias = dict[str, Any]
"""Plain JSON data: texts, numbers, booleans, null, lists and maps of these."""


def identify_window(window: WindowFn) -> Identity:
    """Which windows."""
    match window:
        case w.Sliding(size=size, every=every, offset=offset):
            return {"kind": "sliding", "size": size, "every": every, "offset": offset}
        case w.Unaligned(size=size, every=every, offset=expr):
            return {"kind": "unaligned", "size": size, "every": every, "offset": str(expr)}
        case w.Sessions(gap=gap):
            return {"kind": "sessions", "gap": gap}
        case w.GlobalWindow():
            return {"kind": "global"}
        case w.Counted(size=size, every=every):
            return {"kind": "counted", "size": size, "every": every}
        case w.Delta(column=column, threshold=threshold, every=every):
            return {"kind": "delta", "column": column, "threshold": threshold, "every": every}
        case w.Punctuated(expr=expr):
            return {"kind": "punctuated", "expr": str(expr)}
        case w.ProcessingTime(window=inner):
            return {"kind": "processing_time", "window": identify_window(inner)}
        case _:
            return _identify_own(window, vars(window))


def identify_trigger(trigger: Trigger) -> Identity:  # noqa: C901 - a table, one line for each trigger
    """Which trigger, with those that it is made of."""
    match trigger:
        case t.Never():
            return {"kind": "never"}
        case t.AtWatermark(early=early, late=late):
            return {"kind": "at_watermark", "early": _identify_part(early), "late": _identify_part(late)}
        case t.AfterCount(rows=rows):
            return {"kind": "after_count", "rows": rows}
        case t.AfterDelay(delay=delay):
            return {"kind": "after_delay", "delay": delay}
        case t.Every(period=period):
            return {"kind": "every", "period": period, "time": "processing"}
        case t.EveryEventTime(period=period):
            return {"kind": "every", "period": period, "time": "event"}
        case t.Repeatedly(trigger=inner):
            return {"kind": "repeatedly", "trigger": identify_trigger(inner)}
        case t.AnyOf(triggers=inner):
            return {"kind": "any_of", "triggers": [identify_trigger(part) for part in inner]}
        case t.AllOf(triggers=inner):
            return {"kind": "all_of", "triggers": [identify_trigger(part) for part in inner]}
        case t.InOrder(triggers=inner):
            return {"kind": "in_order", "triggers": [identify_trigger(part) for part in inner]}
        case t.Until(trigger=main, last=last):
            return {"kind": "until", "trigger": identify_trigger(main), "last": identify_trigger(last)}
        case t.AtWindowEnd():
            return {"kind": "at_window_end", "time": "processing"}
        case t.AtEnd():
            return {"kind": "at_end"}
        case t.TriggerFn():
            return {**_identify_own(trigger, trigger.settings()), "state": _identify_states(type(trigger))}
        case _:
            raise DefinitionError(f"{trigger} is not a trigger of millrace.triggers; use one of those")


def _identify_part(trigger: Trigger | None) -> Identity | None:
    return None if trigger is None else identify_trigger(trigger)


def identify_evictor(evictor: Evictor) -> Identity:
    """Which rows of a window count."""
    match evictor:
        case e.LastEvictor(rows=rows):
            return {"kind": "last", "rows": rows}
        case e.Within(span=span):
            return {"kind": "within", "span": span}
        case e.DeltaEvictor(column=column, threshold=threshold):
            return {"kind": "delta", "column": column, "threshold": threshold}
        case e.Custom(name=name):
            return {"kind": "custom", "function": name}
        case _:
            raise DefinitionError(f"{evictor} is not an evictor of millrace.evictors; use one of those")


def identify_watermark(watermark: Watermark) -> Identity:
    """Which watermark."""
    limits = {"idle": watermark.idle, "ahead": watermark.ahead}
    match watermark:
        case m.Ascending():
            return {"kind": "ascending", **limits}
        case m.Percentile(share=share, start=start):
            return {"kind": "percentile", "share": share, "start": start, **limits}
        case m.Bounded(delay=delay):
            return {"kind": "bounded", "delay": delay, **limits}
        case m.IngestionTime(idle=idle):
            return {"kind": "ingestion_time", "idle": idle}
        case m.Punctuation(expr=expr):
            return {"kind": "punctuation", "expr": str(expr), **limits}
        case _:
            return _identify_own(watermark, {})


_AGGREGATE_KINDS: dict[type[Reduction], str] = {
    a.Count: "count",
    a.Sum: "sum",
    a.Mean: "mean",
    a.StdDev: "stddev",
    a.Min: "min",
    a.Max: "max",
    a.Latest: "latest",
    a.Earliest: "earliest",
    a.Collect: "collect",
    a.Distinct: "distinct",
    a.Quantiles: "quantiles",
    a.Frequent: "frequent",
    a.Top: "top",
}
_SKETCH_KINDS: dict[type[a.Aggregate], str] = {
    DistinctSketch: "distinct_sketch",
    QuantilesSketch: "quantiles_sketch",
    FrequentSketch: "frequent_sketch",
}


def identify_aggregate(aggregate: Reduction) -> Identity:
    """Which aggregate, of which columns or expressions."""
    if aggregate.argument is None:
        return _identify_computation(aggregate)
    argument = {
        "values": {name: str(expr) for name, expr in aggregate.argument.values.items()},
        "where": None if aggregate.argument.where is None else str(aggregate.argument.where),
    }
    return {**_identify_computation(aggregate), "argument": argument}


def _identify_computation(aggregate: Reduction) -> Identity:
    if isinstance(aggregate, a.OfDistinct):
        inner = replace(aggregate.inner, column=aggregate.column)
        return {**_identify_computation(inner), "distinct": True}
    if isinstance(aggregate, a.Own):
        settings = aggregate.inner.settings()
        own_columns = list(aggregate.inner.columns)
        kind = _SKETCH_KINDS.get(type(aggregate.inner))
        if kind is None:
            return {**_identify_own(aggregate.inner, settings), "columns": own_columns}
        return {"kind": kind, "columns": own_columns, "settings": _plain(settings)}
    identity: Identity = {"kind": _AGGREGATE_KINDS[type(aggregate)], "column": aggregate.column}
    match aggregate:
        case a.Quantiles(ranks=ranks):
            return {**identity, "ranks": list(ranks)}
        case a.Frequent(k=k):
            return {**identity, "k": k}
        case a.Collect(distinct=True):
            return {**identity, "distinct": True}
        case a.Top(k=k, columns=columns, by=(by,), descending=(True,)):
            return {"kind": "top", "k": k, "columns": list(columns), "by": by}
        case a.Top(k=k, columns=columns, by=by, descending=descending):
            order = {"by": list(by), "descending": list(descending)}
            return {"kind": "top", "k": k, "columns": list(columns), **order}
        case _:
            return identity


def identify_pattern(pattern: Pattern) -> Identity:
    """Which sequences of events."""
    skip = {"kind": pattern.skip.kind, "step": pattern.skip.step, "on_miss": pattern.skip.on_miss}
    return {
        "parts": [_identify_pattern_part(part) for part in pattern.parts],
        "within": pattern.span,
        "skip": skip,
    }


def _identify_pattern_part(part: PatternPart) -> Identity:
    return {
        "link": part.link,
        "step": part.name,
        "group": [_identify_pattern_part(inner) for inner in part.parts],
        "where": _identify_condition(part.where),
        "least": part.least,
        "most": part.most,
        "between": part.inner,
        "optional": part.optional,
        "greedy": part.greedy,
        "until": _identify_condition(part.until),
        "gap": part.gap,
        "loop_gap": part.loop_gap,
    }


def _identify_condition(condition: Condition | None) -> Identity | None:
    if condition is None:
        return None
    terms = [
        _identify_condition(term)
        if isinstance(term, Condition)
        else str(term)
        if isinstance(term, pl.Expr)
        else getattr(term, "__name__", "function")
        for term in condition.terms
    ]
    return {"holds": "any" if condition.is_any else "all", "of": terms}


def identify_row_pattern(pattern: RowPattern) -> Identity:
    """Which MATCH_RECOGNIZE."""
    return {
        "pattern": pattern.text,
        "define": dict(pattern.define),
        "measures": dict(pattern.measures),
        "subsets": {name: list(members) for name, members in pattern.subsets.items()},
        "all_rows": pattern.all_rows,
        "empty_matches": pattern.empty_matches,
        "with_unmatched": pattern.with_unmatched,
        "skip": {"kind": pattern.after.kind, "variable": pattern.after.variable},
        "within": pattern.span,
    }


def identify_processor(processor: Processor) -> Identity:
    """Which processor, by the name of the user's class, and what it keeps."""
    return {"name": type(processor).__name__, "state": _identify_states(type(processor))}


def _identify_states(owner: type) -> Identity:
    """The state that a user's class declares."""
    return {
        name: {"kind": declared.kind, "shared": declared.shared}
        for name, declared in find_states(owner).items()
    }


def identify_fields(dtype: pl.DataType) -> Identity | None:
    """The fields of what is kept as it came,
    such as the rows of both sides of a join; None of plain values.
    """
    if isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.Struct):
        return {field.name: str(field.dtype) for field in dtype.inner.fields}
    return None


def find_expressions(value: Any) -> Iterator[pl.Expr]:
    """Every expression in a window, a pattern, or a collection of them."""
    if isinstance(value, pl.Expr):
        yield value
    elif isinstance(value, Mapping):
        yield from find_expressions(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from find_expressions(item)
    elif is_dataclass(value):
        yield from find_expressions([getattr(value, field.name) for field in fields(value)])


def _identify_own(value: object, settings: Mapping[str, Any]) -> Identity:
    """What a user has written: known by the name of its class and by its settings."""
    return {"kind": "own", "name": type(value).__name__, "settings": _plain(settings)}


def _plain(settings: Mapping[str, Any]) -> Identity:
    return {name: _to_plain(value) for name, value in sorted(settings.items())}


_PLAIN: dict[type, Callable[[Any], Any]] = {
    list: lambda values: [_to_plain(value) for value in values],
    tuple: lambda values: [_to_plain(value) for value in values],
    dict: lambda values: {str(key): _to_plain(value) for key, value in values.items()},
}


def _to_plain(value: Any) -> Any:
    """A setting as JSON data; what JSON does not know, by its text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _PLAIN[type(value)](value) if type(value) in _PLAIN else str(value)
