"""Selectors and names of columns mean the same in every method, as they do in polars."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import polars.selectors as cs
import pytest

import millrace as mr
from millrace import windows
from millrace.errors import DefinitionError
from millrace.stream import Stream
from millrace.testing import Script
from millrace.values import expressions


@dataclass
class Ride:
    who: str
    cell: int
    speed: float
    fast: bool
    stops: list[int]
    names: list[str]


TIMES = ["event_time", "ingestion_time"]
FIELDS = ["who", "cell", "speed", "fast", "stops", "names"]
RIDES = mr.Topic("rides", Ride)
FRAME = pl.DataFrame(
    {
        "who": ["a", "b"],
        "cell": [1, 2],
        "speed": [1.5, 2.5],
        "fast": [True, False],
        "stops": [[1], [2, 3]],
        "names": [["x"], ["y", "z"]],
        "event_time": [10, 20],
        "ingestion_time": [30, 40],
        "_ahead": [False, False],
        "_off": [0, 1],
    }
)


def rides() -> Stream:
    return mr.read(RIDES)


def applied(rows: Stream) -> pl.DataFrame:
    result: pl.DataFrame = rows.node.apply(FRAME)  # type: ignore[attr-defined] # a stateless step
    return result


@pytest.mark.parametrize(
    ("arguments", "columns"),
    [
        ([cs.numeric()], ["cell", "speed"]),
        ([cs.all() - cs.list()], ["who", "cell", "speed", "fast"]),
        ([pl.all()], FIELDS),
        ([pl.exclude("who")], FIELDS[1:]),
        ([pl.col("^s.*$")], ["speed", "stops"]),
        ([pl.col(pl.Int64, pl.Boolean)], ["cell", "fast"]),
        ([pl.col("cell", "who")], ["cell", "who"]),
        ([["who", pl.col("cell").alias("at")], cs.float().name.suffix("_kmh")], ["who", "at", "speed_kmh"]),
        ([pl.struct(cs.numeric()).alias("both")], ["both"]),
        ([pl.lit(1).alias("one"), cs.string()], ["one", "who"]),
    ],
    ids=lambda value: str(value) if isinstance(value[0], str) else None,
)
def test_select_takes_what_polars_takes(arguments: list[Any], columns: list[str]) -> None:
    selected = rides().select(*arguments)
    assert selected.columns == [*columns, *TIMES]
    frame = applied(selected)
    expected = (
        FRAME.select(FIELDS)
        .with_columns(FRAME.select(FIELDS).select(expressions.flatten(arguments)))
        .select(columns)
    )
    assert frame.select(columns).equals(expected)
    assert frame.select(*TIMES, "_ahead", "_off").equals(FRAME.select(*TIMES, "_ahead", "_off"))


def test_with_columns_leaves_the_times_alone() -> None:
    doubled = rides().with_columns(cs.numeric() * 2, later=pl.col("event_time") + 1)
    assert doubled.columns == [*FIELDS, *TIMES, "later"]
    frame = applied(doubled)
    assert frame["cell"].to_list() == [2, 4]
    assert frame["event_time"].to_list() == [10, 20]
    assert frame["later"].to_list() == [11, 21]


def test_a_selection_that_matches_the_times_alone_means_them() -> None:
    frame = applied(rides().with_columns(pl.col("^.*_time$").name.suffix("_copy")))
    assert frame["event_time_copy"].to_list() == [10, 20]
    assert applied(rides().select(pl.col("cell", "event_time"))).columns[:2] == ["cell", "event_time"]


def test_filter_takes_selectors_of_one_condition() -> None:
    for rows in (
        rides().filter(cs.boolean()),
        rides().filter(pl.all_horizontal(cs.boolean())),
        rides().filter([cs.boolean(), pl.col("cell") > 0], who="a"),
        rides().filter(pl.sum_horizontal(cs.numeric()) < 3),
    ):
        assert applied(rows)["who"].to_list() == ["a"]
    with pytest.raises(DefinitionError, match=r"is 2 conditions \(cell, speed\); say pl.all_horizontal"):
        rides().filter(cs.numeric() > 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ["stops", "cell"],
        [["stops"], pl.col("cell")],
        [pl.col("stops", "cell")],
        [cs.by_name("stops", "cell")],
    ],
)
def test_drop_takes_names_and_selectors(arguments: list[Any]) -> None:
    rows = rides().drop(*arguments)
    assert rows.columns == ["who", "speed", "fast", "names", *TIMES]
    assert applied(rows).columns == [*rows.columns, "_ahead", "_off"]


def test_drop_by_type_keeps_the_times() -> None:
    assert rides().drop(cs.numeric()).columns == ["who", "fast", "stops", "names", *TIMES]
    with pytest.raises(DefinitionError, match="every row has event_time, which is never a field"):
        rides().drop("event_time")


def test_rename_gives_columns_other_names() -> None:
    rows = rides().rename({"who": "cell", "cell": "who"})
    assert rows.columns == ["cell", "who", *FIELDS[2:], *TIMES]
    assert applied(rows)["cell"].to_list() == ["a", "b"]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ({"whom": "x"}, r"rename\('whom'\): there is no column 'whom'; .*; did you mean 'who'\?"),
        ({"who": "cell"}, "gives two columns the name 'cell'; drop one of them first"),
        ({"event_time": "x"}, "event_time has a meaning of its own"),
        ({"who": "window_end"}, "window_end has a meaning of its own"),
        (["who"], "a mapping of old to new names"),
    ],
    ids=str,
)
def test_a_wrong_name_is_refused(names: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        rides().rename(names)


def test_explode_takes_selectors() -> None:
    for rows in (
        rides().explode(cs.list()),
        rides().explode("stops", "names"),
        rides().explode(pl.col("stops", "names")),
    ):
        assert applied(rows)["names"].to_list() == ["x", "y", "z"]
    with pytest.raises(DefinitionError, match=r"explode\('cell'\) needs a list, but 'cell' is Int64"):
        rides().explode("cell")


def test_keys_may_be_selected() -> None:
    assert rides().group_by(cs.string()).keys == ("who",)
    assert rides().group_by(pl.col("who", "cell")).keys == ("who", "cell")
    copies = rides().group_by("who").deduplicate(cs.integer(), cs.boolean(), within="1s")
    assert copies.node.columns == ("cell", "fast")  # type: ignore[attr-defined] # a deduplication


def test_a_key_that_has_no_hash_is_refused_where_the_job_is_built() -> None:
    with pytest.raises(DefinitionError, match=r"a key of type List\(Int64\) is not supported"):
        rides().group_by("stops")


UNKNOWN: dict[str, Callable[[], object]] = {
    "select": lambda: rides().select("spead"),
    "select an expression": lambda: rides().select(x=pl.col("spead") * 2),
    "with_columns": lambda: rides().with_columns(x=pl.col("spead")),
    "filter": lambda: rides().filter(pl.col("spead") > 1),
    "filter a value": lambda: rides().filter(spead=1.5),
    "drop": lambda: rides().drop("spead"),
    "rename": lambda: rides().rename({"spead": "x"}),
    "explode": lambda: rides().explode("spead"),
    "group_by": lambda: rides().group_by("spead"),
    "deduplicate": lambda: rides().group_by("who").deduplicate("spead", within="1s"),
    "lookup": lambda: rides().lookup(lambda key: {"x": key}, "spead", schema={"x": pl.Int64()}),
    "aggregate": lambda: rides().window(windows.fixed("1s")).group_by("who").sum("spead"),
    "a window": lambda: rides().window(windows.delta("spead", 3)).group_by("who").count(),
    "a watermark": lambda: mr.read(RIDES, watermark=mr.watermarks.punctuation(pl.col("spead"))),
    "a pattern": lambda: (
        rides()
        .group_by("who")
        .match(mr.pattern("a", pl.col("spead") > 1).within("1s"), select={"x": pl.col("cell")})
    ),
}


@pytest.mark.parametrize("call", UNKNOWN)
def test_an_unknown_column_names_those_of_the_user_and_the_nearest(call: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        UNKNOWN[call]()
    text = str(caught.value)
    assert "there is no column 'spead'" in text
    assert f"there are {', '.join(FIELDS)}, event_time, ingestion_time" in text
    assert text.endswith("; did you mean 'speed'?")
    assert "_off" not in text


def test_nothing_prints_the_graph() -> None:
    keyed = rides().group_by("who")
    counts = rides().window(windows.fixed("1s")).group_by("who").count()
    output = counts.write("counts")
    assert repr(rides()) == f"Stream({', '.join([*FIELDS, *TIMES])})"
    assert repr(keyed) == "Keyed(by who: cell, speed, fast, stops, names)"
    assert repr(output) == "Output('counts': who, count)"
    assert repr(mr.Job("counts", output)) == "Job('counts')"
    assert repr(counts.node).startswith("Aggregation(who, count, event_time, ")
    wrong: Any = counts
    with pytest.raises(
        DefinitionError, match=r"^job 'j': Stream\(who, count, .*\) is not the end of a stream"
    ):
        mr.Job("j", wrong)


def test_steps_by_selectors_run() -> None:
    rows = rides().filter(cs.boolean()).with_columns(cs.numeric() * 2).drop(cs.list()).rename({"who": "name"})
    for on in ("engine", "model"):
        script = Script(mr.Job("j", rows.write("out")), on=on)
        script.events(
            *({"who": "a", "cell": n, "speed": 1.0, "fast": n > 1, "event_time": n} for n in range(4))
        )
        assert [(row["name"], row["cell"], row["event_time"]) for row in script.panes()] == [
            ("a", 4, 2),
            ("a", 6, 3),
        ]
