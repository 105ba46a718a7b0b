"""Rows condensed to partials, and which of them is the latest."""

from dataclasses import dataclass
from itertools import permutations

import polars as pl
import pytest

import millrace as mr
from millrace import watermarks, windows
from millrace.engine.operators.partials import partials_of
from millrace.engine.plan import Plan
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, OnModel


@dataclass
class Location:
    vehicle: str
    cell: int


PLACES = mr.Topic("input.places", Location, key="vehicle", partitions=2)
CELLS = mr.Topic("analytics.cells", Location, key="vehicle")


def latest() -> mr.Job:
    places = mr.read(PLACES, watermark=watermarks.bounded(0))
    return mr.Job(
        "latest", places.window(windows.sliding(30, every=5)).group_by("vehicle").latest("cell").write(CELLS)
    )


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_latest_of_rows_in_any_order_is_that_of_the_greatest_time_then_source_then_offset(
    order: tuple[int, ...],
) -> None:
    [operator] = Plan.of([latest()], slots=1).operators
    rows = pl.DataFrame(
        {
            "vehicle": ["a"] * 4,
            "cell": [1, 2, 3, 4],
            "_t": [7, 7, 7, 6],
            "_src": [0, 0, 256, 256],
            "_off": [5, 9, 1, 20],
            "_slice": 5,
            "_from": 10,
        }
    )
    found = partials_of(operator.node).from_rows(rows[list(order)])
    assert found.select("cell.v", "cell._t", "cell._src", "cell._off", "_n").row(0) == (3, 7, 256, 1, 4)


def test_a_value_that_was_refused_by_some_windows_does_not_stand_before_one_that_was_not() -> None:
    """A partition that is ahead brings a row that its own first windows refuse, though those have not fired
    yet; one after it, from another, they take.
    """

    def place(partition: int, offset: int, at: int, cell: int, vehicle: str = "a") -> SourceEvent:
        return SourceEvent(PLACES.name, partition, offset, at, at, {"vehicle": vehicle, "cell": cell})

    first = [place(1, 0, 2, 1), place(0, 0, 22, 0, "b")]
    then = [place(0, 1, 7, 2), place(1, 1, 12, 3)]
    last = [place(0, 2, 90, 0, "b"), place(1, 2, 90, 0, "b")]
    engine, model = OnEngine([latest()], {PLACES.name: 2}), OnModel([latest()], {PLACES.name: 2})
    shown = []
    for batch in (first, then, last):
        ours, theirs = (
            [*backend.feed(batch, 100).written.get(CELLS.name, [])] for backend in (engine, model)
        )
        assert sorted(map(str, ours)) == sorted(map(str, theirs))
        shown += [(row["window_end"], row["cell"]) for row in ours if row["vehicle"] == "a"]
    assert sorted(shown) == [(5, 1), (10, 1), (15, 3), (20, 3), (25, 3), (30, 3), (35, 3), (40, 3)]
