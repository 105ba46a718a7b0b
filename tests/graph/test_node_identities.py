"""The identity of every node, word for word.
To change one is to make a new format of state: see `test_identities.py`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, frames, graph, patterns, state, windows
from millrace.stream import Stream


@dataclass
class Ride:
    who: str
    cell: int
    speed: float
    name: str
    pattern: str


RIDES = mr.Topic("rides", Ride, key="who")
SPEED = pl.col("speed")
"""Expressions are known by the text that polars makes of them."""


class Counter(mr.Processor):
    seen: Any = state.value(0)
    log: Any = state.list(ttl="1h")
    known: Any = state.map(shared=True)

    outputs: ClassVar[dict[str, type]] = {"n": int}

    def process(self, row: dict[str, Any], ctx: Any) -> None:
        self.seen = 1


def to_json(identity: Any) -> str:
    return json.dumps(identity, sort_keys=True)


def rides() -> Stream:
    return mr.read(RIDES)


def operator(stream: Stream) -> graph.Node:
    node = stream.node
    return node.inputs[0] if isinstance(node, graph.PaneRows) else node


NODES: dict[str, tuple[Callable[[], Stream], dict[str, Any]]] = {
    "read": (
        lambda: rides(),
        {
            "kind": "read",
            "topic": "rides",
            "watermark": {"kind": "bounded", "delay": 5000, "idle": None, "ahead": 3600000},
        },
    ),
    "filter": (
        lambda: rides().filter(SPEED > 3),
        {"kind": "step", "call": 'filter([(col("speed")) > (dyn int: 3)])'},
    ),
    "select": (
        lambda: rides().select("who", fast=SPEED > 3),
        {"kind": "step", "call": 'select(who, fast=[(col("speed")) > (dyn int: 3)])'},
    ),
    "union": (lambda: rides().union(rides()), {"kind": "union"}),
    "aggregation": (
        lambda: (
            rides()
            .window(windows.fixed("10s"), lateness="1m", closing="if_new")
            .group_by("who", "cell")
            .aggregate(n=aggregates.count(), top=aggregates.max("speed"))
        ),
        {
            "kind": "aggregation",
            "keys": ["who", "cell"],
            "aggregates": [
                {"name": "n", "kind": "count", "column": None},
                {"name": "top", "kind": "max", "column": "speed"},
            ],
            "windowing": {
                "window": {"kind": "sliding", "size": 10000, "every": 10000, "offset": 0},
                "trigger": {"kind": "at_watermark", "early": None, "late": None},
                "lateness": 60000,
                "accumulation": "accumulating",
                "on_time": "always",
                "closing": "if_new",
                "time": "end",
            },
        },
    ),
    "late": (lambda: rides().window(windows.fixed("10s")).group_by("who").count().late(), {"kind": "late"}),
    "window join": (
        lambda: (
            rides()
            .window(windows.fixed("10s"))
            .group_by("who")
            .join(rides().select("who", "cell").group_by("who"))
        ),
        {
            "kind": "aggregation",
            "keys": ["who"],
            "aggregates": [
                {
                    "name": "_left_row",
                    "kind": "collect",
                    "column": "_left_row",
                    "fields": {
                        "_there": "Boolean",
                        "cell": "Int64",
                        "speed": "Float64",
                        "name": "String",
                        "pattern": "String",
                    },
                },
                {
                    "name": "_right_row",
                    "kind": "collect",
                    "column": "_right_row",
                    "fields": {"_there": "Boolean", "cell": "Int64"},
                },
            ],
            "windowing": {
                "window": {"kind": "sliding", "size": 10000, "every": 10000, "offset": 0},
                "trigger": {"kind": "at_watermark", "early": None, "late": None},
                "lateness": 0,
                "accumulation": "accumulating",
                "on_time": "always",
                "closing": "if_new",
                "time": "end",
            },
        },
    ),
    "cogroup": (
        lambda: (
            rides()
            .window(windows.fixed("10s"))
            .group_by("who")
            .cogroup(rides().select("who", "cell").group_by("who"))
        ),
        {
            "kind": "aggregation",
            "keys": ["who"],
            "aggregates": [
                {
                    "name": "left",
                    "kind": "collect",
                    "column": "left",
                    "fields": {"cell": "Int64", "speed": "Float64", "name": "String", "pattern": "String"},
                },
                {"name": "right", "kind": "collect", "column": "right", "fields": {"cell": "Int64"}},
            ],
            "windowing": {
                "window": {"kind": "sliding", "size": 10000, "every": 10000, "offset": 0},
                "trigger": {"kind": "at_watermark", "early": None, "late": None},
                "lateness": 0,
                "accumulation": "accumulating",
                "on_time": "always",
                "closing": "if_new",
                "time": "end",
            },
        },
    ),
    "interval join": (
        lambda: (
            rides()
            .select("who", "cell")
            .group_by("who")
            .join(rides().group_by("who"), within=("-1s", "5s"), how="left")
        ),
        {
            "kind": "interval_join",
            "keys": ["who"],
            "how": "left",
            "columns": [["cell"], ["cell", "speed", "name", "pattern"]],
            "lower": -1000,
            "upper": 5000,
        },
    ),
    "regular join": (
        lambda: (
            rides().select("who", "cell").group_by("who").join(rides().group_by("who"), how="semi", ttl="5s")
        ),
        {
            "kind": "regular_join",
            "keys": ["who"],
            "how": "semi",
            "columns": [["cell"], ["cell", "speed", "name", "pattern"]],
            "ttl": 5000,
        },
    ),
    "table join": (
        lambda: rides().select("who", "cell").group_by("who").join(mr.table(RIDES)),
        {
            "kind": "table_join",
            "keys": ["who"],
            "how": "inner",
            "columns": [["cell"], ["cell", "speed", "name", "pattern"]],
            "table_keys": ["who"],
        },
    ),
    "deduplicate": (
        lambda: rides().group_by("who").deduplicate("cell", within="1m"),
        {"kind": "deduplicate", "keys": ["who"], "columns": ["cell"], "within": 60000},
    ),
    "process": (
        lambda: rides().group_by("who").process(Counter()),
        {
            "kind": "process",
            "keys": ["who"],
            "processor": {
                "name": "Counter",
                "state": {
                    "log": {"kind": "list", "shared": False},
                    "seen": {"kind": "value", "shared": False},
                    "known": {"kind": "map", "shared": True},
                },
            },
        },
    ),
    "match": (
        lambda: (
            rides()
            .group_by("who")
            .match(
                mr.pattern("a", SPEED > 3)
                .followed_by("b", SPEED < 9)
                .one_or_more()
                .within("1m")
                .skip_past_last(),
                select={"n": patterns.count("b")},
            )
        ),
        {
            "kind": "match",
            "keys": ["who"],
            "pattern": {
                "parts": [
                    {
                        "link": "first",
                        "step": "a",
                        "group": [],
                        "where": {"holds": "all", "of": ['[(col("speed")) > (dyn int: 3)]']},
                        "least": 1,
                        "most": 1,
                        "between": "relaxed",
                        "optional": False,
                        "greedy": False,
                        "until": None,
                        "gap": None,
                        "loop_gap": None,
                    },
                    {
                        "link": "followed_by",
                        "step": "b",
                        "group": [],
                        "where": {"holds": "all", "of": ['[(col("speed")) < (dyn int: 9)]']},
                        "least": 1,
                        "most": None,
                        "between": "relaxed",
                        "optional": False,
                        "greedy": False,
                        "until": None,
                        "gap": None,
                        "loop_gap": None,
                    },
                ],
                "within": 60000,
                "skip": {"kind": "past_last", "step": None, "on_miss": "nothing"},
            },
            "shown": {"n": 'col("count(b)")'},
        },
    ),
    "match_recognize": (
        lambda: (
            rides()
            .group_by("who")
            .match_recognize(
                patterns.match_recognize(
                    "A B+",
                    define={"B": "B.speed < PREV(B.speed)"},
                    measures={"low": "LAST(B.speed)"},
                    within="1m",
                )
            )
        ),
        {
            "kind": "match_recognize",
            "keys": ["who"],
            "pattern": {
                "pattern": "A B+",
                "define": {"B": "B.speed < PREV(B.speed)"},
                "measures": {"low": "LAST(B.speed)"},
                "subsets": {},
                "all_rows": False,
                "empty_matches": "show",
                "with_unmatched": False,
                "skip": {"kind": "past_last", "variable": None},
                "within": 60000,
            },
        },
    ),
    "match_rules": (
        lambda: rides().select("who", "cell").group_by("who").match_rules(rides(), show=["cell"]),
        {"kind": "match_rules", "keys": ["who"], "shown": ["steps", "times", "cell"]},
    ),
    "over": (
        lambda: (
            rides()
            .group_by("who")
            .over(
                n=aggregates.count(),
                before=frames.lag("cell", 2),
                after=frames.lead("cell", within="1m"),
                first=frames.first("cell"),
                number=frames.row_number(),
                range="10m",
                ttl="1h",
            )
        ),
        {
            "kind": "over",
            "keys": ["who"],
            "columns": [
                {"name": "n", "kind": "count", "column": None},
                {"name": "before", "kind": "lag", "column": "cell", "n": 2},
                {"name": "after", "kind": "lead", "column": "cell", "n": 1, "within": 60000},
                {"name": "first", "kind": "first", "column": "cell"},
                {"name": "number", "kind": "row_number", "column": None},
            ],
            "frame": {"unit": "range", "lower": -600000, "upper": 0},
            "ttl": 3600000,
            "lateness": None,
        },
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_the_identity_of_a_node(name: str) -> None:
    make, identity = NODES[name]
    assert to_json(operator(make()).identity()) == to_json(identity)


def test_default_operator_ids_are_the_pinned_kinds() -> None:
    kinds = {make().node.identity()["kind"] for make, _ in NODES.values()}
    operators = [operator(make()) for make, _ in NODES.values()]
    for node in operators:
        if isinstance(node, graph.Operation):
            written = graph.Write((node,), node.schema, RIDES)
            assert graph.operator_ids("job", (written,)) == {node: f"job/{node.kind}-1"}
    assert {"read", "union", "late", "step", *KINDS} <= kinds | {
        node.identity()["kind"] for node in operators
    }


KINDS = {
    "aggregation",
    "match",
    "match_recognize",
    "match_rules",
    "deduplicate",
    "process",
    "interval_join",
    "regular_join",
    "table_join",
    "over",
}
