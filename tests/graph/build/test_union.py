"""Columns of a union go together by name."""

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, panes, windows
from millrace.errors import DefinitionError
from millrace.stream import Stream
from millrace.testing import Script


@dataclass
class Ride:
    who: str
    cell: int
    speed: float


@dataclass
class Walk:
    cell: int
    who: str


RIDES, WALKS = mr.Topic("rides", Ride), mr.Topic("walks", Walk)


def results(rows: Stream, on: Any) -> list[dict[str, Any]]:
    script = Script(mr.Job("j", rows.write("out")), on=on)
    script.events({"who": "a", "cell": 1, "speed": 1.5, "event_time": 1}, topic=RIDES)
    script.restart()
    script.events({"who": "b", "cell": 2, "event_time": 2}, topic=WALKS)
    script.end()
    return script.panes()


@pytest.mark.parametrize("on", ["model", "engine"])
def test_the_order_of_columns_does_not_matter(on: Any) -> None:
    both = mr.read(RIDES).drop("speed").union(mr.read(WALKS))
    assert both.columns == ["who", "cell", "event_time", "ingestion_time"]
    assert [(row["who"], row["cell"]) for row in results(both, on)] == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_diagonal_union_fills_with_null(on: Any) -> None:
    both = mr.read(WALKS).union([mr.read(RIDES)], how="diagonal")
    assert both.columns == ["cell", "who", "event_time", "ingestion_time", "speed"]
    found = {row["who"]: row["speed"] for row in results(both, on)}
    assert found == {"a": 1.5, "b": None}


@pytest.mark.parametrize("on", ["model", "engine"])
def test_keys_and_aggregates_go_by_name_too(on: Any) -> None:
    both = mr.read(RIDES).union(mr.read(WALKS), how="diagonal").window(windows.fixed("1s"))
    [pane] = results(both.aggregate(cells=aggregates.sum("cell"), speed=aggregates.max("speed")), on)
    assert (pane["cells"], pane["speed"]) == (3, 1.5)


def test_missing_columns_are_named() -> None:
    with pytest.raises(DefinitionError, match=r"^union: stream 2 lacks speed; select\(\) .* how='diagonal'"):
        mr.read(RIDES).union(mr.read(WALKS))
    with pytest.raises(DefinitionError, match=r"^union: stream 3 lacks who and has name besides; "):
        mr.read(WALKS).union(mr.read(WALKS), mr.read(WALKS).rename({"who": "name"}))


@pytest.mark.parametrize("how", ["vertical", "diagonal"])
def test_types_must_be_equal(how: Any) -> None:
    text = mr.read(WALKS).with_columns(cell=pl.col("cell").cast(pl.String))
    with pytest.raises(
        DefinitionError, match="cell is Int64 in the first stream and String in stream 2; cast one"
    ):
        mr.read(WALKS).union(text, how=how)


@pytest.mark.parametrize("rows_first", [True, False])
def test_rows_beside_results_are_results_that_are_shown_once(rows_first: bool) -> None:
    counts = mr.read(WALKS).window(windows.fixed("1s")).group_by("who").count()
    streams = [mr.read(WALKS), counts] if rows_first else [counts, mr.read(WALKS)]
    both = streams[0].union(streams[1], how="diagonal")
    assert {*both.columns} == {"who", "cell", "count", "event_time", *panes.COLUMNS}


def test_another_way_to_unite_is_refused() -> None:
    wrong: Any = "horizontal"
    with pytest.raises(DefinitionError, match="how='horizontal'"):
        mr.read(WALKS).union(mr.read(WALKS), how=wrong)


def test_the_order_of_columns_is_no_part_of_what_state_depends_on() -> None:
    plain = mr.read(WALKS).union(mr.read(WALKS).select("who", "cell"))
    assert plain.node.inputs[1].identity() == {}
