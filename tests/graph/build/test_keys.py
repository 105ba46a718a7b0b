"""Keys that are computed: grouping by expressions."""

from dataclasses import dataclass
from typing import Any

import polars as pl
import polars.selectors as cs
import pytest

import millrace as mr
from millrace import aggregates, graph, windows
from millrace.errors import DefinitionError
from millrace.testing.script import On, Script
from strategies import A, write

HOUR = 3_600_000
READINGS = mr.read(A)
ROWS = READINGS.window(windows.fixed(10), lateness=20)
ODD = pl.col("v") % 2


def reading(at: int, **fields: Any) -> dict[str, Any]:
    return {"k": "a", "g": 1, "v": 1, "x": 1.0, "b": True, "event_time": at, **fields}


@pytest.mark.parametrize("on", ["model", "engine"])
def test_rows_are_grouped_by_what_an_expression_makes_of_them(on: On) -> None:
    """A null is a key, too, and late rows show the key beside their columns."""
    counts = ROWS.group_by("k", odd=ODD).count(name="n")
    assert counts.columns[:3] == ["k", "odd", "n"]
    outputs = [write(counts, "analytics.one"), write(counts.late(), "analytics.late")]
    script = Script(mr.Job("one", *outputs), on=on, partitions=2)
    script.events(*(reading(at, v=v) for at, v in enumerate([1, 2, 3, None, 5])), partition=[0, 1, 0, 1, 0])
    script.watermark(10)
    found = {(pane["k"], pane["odd"]): pane["n"] for pane in script.panes("analytics.one")}
    assert found == {("a", 1): 3, ("a", 0): 1, ("a", None): 1}
    script.watermark(60)
    script.events(reading(1, v=4))
    [late] = script.panes("analytics.late")
    assert {name: late[name] for name in ("k", "v", "odd")} == {"k": "a", "v": 4, "odd": 0}


@pytest.mark.parametrize(
    ("group", "keys"),
    [
        (lambda: READINGS.group_by("k", ["g", pl.col("b")]), ("k", "g", "b")),
        (lambda: READINGS.group_by(pl.col("k", "g")), ("k", "g")),
        (lambda: READINGS.group_by(cs.string()), ("k",)),
        (lambda: READINGS.group_by(ODD.alias("odd"), "k"), ("odd", "k")),
        (lambda: READINGS.group_by(hour=pl.col("event_time") // HOUR), ("hour",)),
        (lambda: READINGS.group_by(line="k"), ("line",)),
        (lambda: READINGS.group_by(pl.concat_str("k", "k").alias("s")), ("s",)),
        (lambda: READINGS.group_by(sign=pl.when(pl.col("v") > 0).then(1)), ("sign",)),
    ],
)
def test_a_key_is_names_expressions_and_lists_of_these(group: Any, keys: tuple[str, ...]) -> None:
    assert group().keys == keys


def test_an_expression_is_the_same_step_as_with_columns() -> None:
    """So a job may be written either way and keep its state."""
    by_keyword, by_step = ROWS.group_by(odd=ODD).count(), ROWS.with_columns(odd=ODD).group_by("odd").count()
    identities = [
        [node.identity() for node in graph.walk(stream.node, {})] for stream in (by_keyword, by_step)
    ]
    assert identities[0] == identities[1]


@dataclass
class Limit:
    """A table by parity."""

    parity: int
    limit: int


LIMITS = mr.Topic("input.limits", Limit, key="parity")


@pytest.mark.parametrize("on", ["model", "engine"])
def test_whatever_takes_a_key_takes_a_computed_one(on: On) -> None:
    within = READINGS.group_by(odd=ODD).join(mr.table(LIMITS)).select("v", "limit")
    script = Script(mr.Job("one", write(within, "analytics.one")), on=on)
    script.events({"parity": 1, "limit": 7, "event_time": 0}, topic=LIMITS)
    script.events(reading(1, v=3), reading(2, v=4), topic=A)
    script.watermark(10)
    assert [(row["v"], row["limit"]) for row in script.panes()] == [(3, 7)]
    first = READINGS.group_by(odd=ODD).deduplicate(within=100)
    assert first.columns == [*READINGS.columns, "odd"]


def test_panes_are_grouped_by_expressions_again() -> None:
    counts = ROWS.group_by("k").count(name="n").group_by(size=pl.col("n").clip(0, 3)).count(name="keys")
    assert counts.columns[:2] == ["size", "keys"]
    with pytest.raises(DefinitionError, match="looks at how panes came about"):
        ROWS.group_by("k").count(name="n").group_by(early=pl.col("index") == 0).aggregate(
            m=aggregates.count()
        )


ANY: Any = READINGS
WRONG: list[tuple[Any, str]] = [
    (lambda: READINGS.group_by(), r"names no column"),
    (lambda: READINGS.group_by(pl.col("event_time") // HOUR), r"would be called 'event_time', .* name it"),
    (lambda: READINGS.group_by(window_end=ODD), r"would be called 'window_end', .* name it"),
    (lambda: READINGS.group_by("event_time"), r"group_by\(my_event_time=pl.col\('event_time'\)\)"),
    (lambda: READINGS.group_by(pl.col("k").str.to_lowercase()), r"would be called 'k'.* group_by\(my_k"),
    (lambda: READINGS.group_by(v=ODD), r"would be called 'v', .* with_columns\(v=...\)"),
    (lambda: READINGS.group_by(_odd=ODD), r"'_odd', and names that begin with an underscore"),
    (lambda: READINGS.group_by(total=pl.col("v").sum()), r"looks across rows"),
    (lambda: READINGS.group_by(pl.col("v").rank().alias("r")), r"looks across rows"),
    (lambda: READINGS.group_by(z=pl.col("nope") + 1), r"group_by\('nope'\): there is no column 'nope'"),
    (lambda: READINGS.group_by(z=pl.col("k") + 1), r"does not fit the columns k, g, v, x, b"),
    (lambda: READINGS.group_by("k", "k"), r"names a column twice"),
    (lambda: READINGS.group_by("k", ODD.alias("odd"), odd=ODD), r"names a column twice"),
    (lambda: READINGS.group_by(pl.col("v", "g") + 1), r"makes 2 columns; write an expression for each"),
    (lambda: ANY.group_by(3), r"group_by\(3\) needs columns"),
    (lambda: ANY.group_by(n=3), r"group_by\(3\) needs columns"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_a_wrong_key_is_refused_in_one_line(call: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
