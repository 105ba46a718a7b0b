"""The identity of every window, trigger, watermark and aggregate, word for word; those of nodes:
`test_node_identities.py`.

Stored state is found again only if these stay the same. To change one is to make a new format of state: raise
the number of the format, so that older state is refused, and only then change the text here.
"""

import json
from typing import Any

import polars as pl
import pytest

from millrace import aggregates, triggers, watermarks, windows
from millrace.aggregates import Aggregate, Reduction
from millrace.graph.identity import identify_aggregate, identify_trigger, identify_watermark, identify_window
from millrace.triggers import Trigger
from millrace.watermarks import Watermark
from millrace.windows import Window, WindowFn

SPEED = pl.col("speed")
"""Expressions are known by the text that polars makes of them."""


class Days(WindowFn):
    def __init__(self, zone: str) -> None:
        self.zone = zone

    def assign(self, at: int) -> list[Window]:
        return [(at, at + 1)]


class Range(Aggregate):
    returns = pl.Float64()

    def __init__(self, column: str, scale: int) -> None:
        super().__init__(column)
        self.scale = scale

    def create(self) -> Any:
        return None

    def add(self, state: Any, value: Any) -> Any:
        return value

    def merge(self, one: Any, other: Any) -> Any:
        return one or other

    def result(self, state: Any) -> Any:
        return state


def to_json(identity: Any) -> str:
    return json.dumps(identity, sort_keys=True)


WINDOWS: list[tuple[WindowFn, dict[str, Any]]] = [
    (windows.fixed("10s"), {"kind": "sliding", "size": 10000, "every": 10000, "offset": 0}),
    (
        windows.sliding("30s", every="5s", offset="1s"),
        {"kind": "sliding", "size": 30000, "every": 5000, "offset": 1000},
    ),
    (
        windows.fixed("10s", offset=pl.col("cell")),
        {"kind": "unaligned", "size": 10000, "every": 10000, "offset": 'col("cell")'},
    ),
    (windows.sessions("5s"), {"kind": "sessions", "gap": 5000}),
    (windows.global_window(), {"kind": "global"}),
    (windows.counted(3), {"kind": "counted", "size": 3, "every": 3}),
    (windows.counted(4, every=2), {"kind": "counted", "size": 4, "every": 2}),
    (windows.delta("speed", 2.5), {"kind": "delta", "column": "speed", "threshold": 2.5, "every": None}),
    (
        windows.delta("speed", 2.5, every=1),
        {"kind": "delta", "column": "speed", "threshold": 2.5, "every": 1},
    ),
    (windows.punctuated(SPEED > 3), {"kind": "punctuated", "expr": '[(col("speed")) > (dyn int: 3)]'}),
    (
        windows.processing_time(windows.fixed("1m")),
        {
            "kind": "processing_time",
            "window": {"kind": "sliding", "size": 60000, "every": 60000, "offset": 0},
        },
    ),
    (Days("Europe/Helsinki"), {"kind": "own", "name": "Days", "settings": {"zone": "Europe/Helsinki"}}),
]
TRIGGERS: list[tuple[Trigger, dict[str, Any]]] = [
    (triggers.never(), {"kind": "never"}),
    (triggers.at_watermark(), {"kind": "at_watermark", "early": None, "late": None}),
    (
        triggers.at_watermark(early=triggers.after_count(2), late=triggers.never()),
        {"kind": "at_watermark", "early": {"kind": "after_count", "rows": 2}, "late": {"kind": "never"}},
    ),
    (triggers.after_count(3), {"kind": "after_count", "rows": 3}),
    (triggers.after_delay("2s"), {"kind": "after_delay", "delay": 2000}),
    (triggers.every("1s"), {"kind": "every", "period": 1000, "time": "processing"}),
    (triggers.every("1s", time="event"), {"kind": "every", "period": 1000, "time": "event"}),
    (
        triggers.repeatedly(triggers.after_count(1)),
        {"kind": "repeatedly", "trigger": {"kind": "after_count", "rows": 1}},
    ),
    (
        triggers.any_of(triggers.after_count(1), triggers.at_end()),
        {"kind": "any_of", "triggers": [{"kind": "after_count", "rows": 1}, {"kind": "at_end"}]},
    ),
    (
        triggers.all_of(triggers.after_count(1), triggers.at_end()),
        {"kind": "all_of", "triggers": [{"kind": "after_count", "rows": 1}, {"kind": "at_end"}]},
    ),
    (
        triggers.in_order(triggers.after_count(1), triggers.at_end()),
        {"kind": "in_order", "triggers": [{"kind": "after_count", "rows": 1}, {"kind": "at_end"}]},
    ),
    (
        triggers.every("1s").until(triggers.at_end()),
        {
            "kind": "until",
            "trigger": {"kind": "every", "period": 1000, "time": "processing"},
            "last": {"kind": "at_end"},
        },
    ),
    (triggers.at_window_end(), {"kind": "at_window_end", "time": "processing"}),
    (triggers.at_end(), {"kind": "at_end"}),
]
WATERMARKS: list[tuple[Watermark, dict[str, Any]]] = [
    (watermarks.bounded("5s"), {"kind": "bounded", "delay": 5000, "idle": None, "ahead": 3600000}),
    (
        watermarks.bounded("5s", idle="10s", ahead="2h"),
        {"kind": "bounded", "delay": 5000, "idle": 10000, "ahead": 7200000},
    ),
    (watermarks.ascending(), {"kind": "ascending", "idle": None, "ahead": 3600000}),
    (watermarks.ingestion_time(idle="1s"), {"kind": "ingestion_time", "idle": 1000}),
    (
        watermarks.percentile(0.99, start="3s"),
        {"kind": "percentile", "share": 0.99, "start": 3000, "idle": None, "ahead": 3600000},
    ),
    (
        watermarks.punctuation(pl.col("cell")),
        {"kind": "punctuation", "expr": 'col("cell")', "idle": None, "ahead": 3600000},
    ),
]
AGGREGATES: list[tuple[Reduction, dict[str, Any]]] = [
    (aggregates.count(), {"kind": "count", "column": None}),
    (aggregates.count("speed"), {"kind": "count", "column": "speed"}),
    (aggregates.sum("speed"), {"kind": "sum", "column": "speed"}),
    (aggregates.mean("speed"), {"kind": "mean", "column": "speed"}),
    (aggregates.stddev("speed"), {"kind": "stddev", "column": "speed"}),
    (aggregates.min("speed"), {"kind": "min", "column": "speed"}),
    (aggregates.max("speed"), {"kind": "max", "column": "speed"}),
    (aggregates.latest("cell"), {"kind": "latest", "column": "cell"}),
    (aggregates.earliest("cell"), {"kind": "earliest", "column": "cell"}),
    (aggregates.collect("cell"), {"kind": "collect", "column": "cell"}),
    (aggregates.distinct("cell"), {"kind": "distinct", "column": "cell"}),
    (
        aggregates.distinct("cell", approx=True),
        {"kind": "distinct_sketch", "columns": ["cell"], "settings": {}},
    ),
    (
        aggregates.quantiles("speed", [0.5, 0.9]),
        {"kind": "quantiles", "column": "speed", "ranks": [0.5, 0.9]},
    ),
    (
        aggregates.quantiles("speed", [0.5], approx=True),
        {"kind": "quantiles_sketch", "columns": ["speed"], "settings": {"ranks": [0.5]}},
    ),
    (aggregates.top(3, "cell"), {"kind": "frequent", "column": "cell", "k": 3}),
    (
        aggregates.top(3, "cell", approx=True),
        {"kind": "frequent_sketch", "columns": ["cell"], "settings": {"k": 3}},
    ),
    (aggregates.top(3, "cell", by="speed"), {"kind": "top", "k": 3, "columns": ["cell"], "by": "speed"}),
    (
        aggregates.top(3, "cell", by=["speed", "at"], descending=[False, True], ranks=True),
        {"kind": "top", "k": 3, "columns": ["cell"], "by": ["speed", "at"], "descending": [False, True]},
    ),
    (aggregates.count("cell", distinct=True), {"kind": "distinct", "column": "cell"}),
    (aggregates.sum("speed", distinct=True), {"kind": "sum", "column": "speed", "distinct": True}),
    (
        aggregates.quantiles("speed", [0.5], distinct=True),
        {"kind": "quantiles", "column": "speed", "ranks": [0.5], "distinct": True},
    ),
    (aggregates.collect("cell", distinct=True), {"kind": "collect", "column": "cell", "distinct": True}),
    (aggregates.sum(pl.col("speed")), {"kind": "sum", "column": "speed"}),
    (
        aggregates.count(where=SPEED > 3).bind("fast"),
        {
            "kind": "count",
            "column": "_argument_fast",
            "argument": {"values": {}, "where": '[(col("speed")) > (dyn int: 3)]'},
        },
    ),
    (
        aggregates.sum(SPEED * 2).bind("twice"),
        {
            "kind": "sum",
            "column": "_argument_twice",
            "argument": {"values": {"speed": '[(col("speed")) * (dyn int: 2)]'}, "where": None},
        },
    ),
    (
        aggregates.distinct("cell", approx=True, where="fast").bind("cells"),
        {
            "kind": "distinct_sketch",
            "columns": ["cell"],
            "settings": {},
            "argument": {"values": {"cell": 'col("cell")'}, "where": 'col("fast")'},
        },
    ),
    (
        aggregates.own(Range("speed", scale=2)),
        {"kind": "own", "name": "Range", "settings": {"scale": 2}, "columns": ["speed"]},
    ),
]


@pytest.mark.parametrize(("window", "identity"), WINDOWS, ids=lambda value: str(value)[:40])
def test_the_identity_of_a_window(window: WindowFn, identity: dict[str, Any]) -> None:
    assert to_json(identify_window(window)) == to_json(identity)


@pytest.mark.parametrize(("trigger", "identity"), TRIGGERS, ids=lambda value: str(value)[:40])
def test_the_identity_of_a_trigger(trigger: Trigger, identity: dict[str, Any]) -> None:
    assert to_json(identify_trigger(trigger)) == to_json(identity)


@pytest.mark.parametrize(("watermark", "identity"), WATERMARKS, ids=lambda value: str(value)[:40])
def test_the_identity_of_a_watermark(watermark: Watermark, identity: dict[str, Any]) -> None:
    assert to_json(identify_watermark(watermark)) == to_json(identity)


@pytest.mark.parametrize(("aggregate", "identity"), AGGREGATES, ids=lambda value: str(value)[:40])
def test_the_identity_of_an_aggregate(aggregate: Reduction, identity: dict[str, Any]) -> None:
    assert to_json(identify_aggregate(aggregate)) == to_json(identity)


def test_every_window_trigger_and_aggregate_has_a_vector() -> None:
    covered = {type(value).__name__ for value, _ in [*WINDOWS, *TRIGGERS, *AGGREGATES]}
    declared = {
        name for module in (windows, triggers, aggregates) for name in vars(module) if name[0].isupper()
    }
    abstract = {"Trigger", "TriggerFn", "WindowFn", "Ordered", "Reduction", "Aggregate"}
    own = {
        name
        for name in declared - abstract
        for module in (windows, triggers, aggregates)
        if isinstance(kind := vars(module).get(name), type)
        and issubclass(kind, Trigger | WindowFn | Reduction)
    }
    assert own <= covered


class Alarming(Range):
    """A range that reports to somebody: who that is changes no state."""

    def __init__(self, column: str, scale: int, reports_to: str) -> None:
        super().__init__(column, scale=scale)
        self.reports_to = reports_to

    def settings(self) -> dict[str, object]:
        return {"scale": self.scale}


def test_an_own_aggregate_may_leave_out_what_changes_no_state() -> None:
    identity = {"kind": "own", "name": "Alarming", "settings": {"scale": 2}, "columns": ["speed"]}
    for name in ("Ada", "Grace"):
        assert identify_aggregate(aggregates.own(Alarming("speed", 2, name))) == identity
