"""User-defined aggregates: in chains, with and without `retract`, and their errors."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, testing, windows
from millrace.aggregates import Aggregate
from millrace.engine.operators.chained import ChainedOperator
from millrace.engine.plan import Plan
from millrace.errors import DefinitionError


@dataclass
class Ride:
    line: str
    vehicle: str
    speed: float | None


@dataclass
class Out:
    line: str
    mode: float | None


RIDES = mr.Topic("input.rides", Ride, key="line")
MODES = mr.Topic("analytics.modes", Out, key="line")


class Mode(Aggregate):
    """The most frequent value; the smallest of equally frequent ones."""

    returns = pl.Float64()

    def create(self) -> Counter[float]:
        return Counter()

    def add(self, state: Counter[float], value: float) -> Counter[float]:
        state[value] += 1
        return state

    def merge(self, one: Counter[float], other: Counter[float]) -> Counter[float]:
        one.update(other)
        return one

    def result(self, state: Counter[float]) -> float | None:
        there = [(-count, value) for value, count in state.items() if count > 0]
        return min(there)[1] if there else None


class RetractingMode(Mode):
    def retract(self, state: Counter[float], value: float) -> Counter[float]:
        state[value] -= 1
        return state


class CarelessMode(RetractingMode):
    """`create` returns the same object each time."""

    def __init__(self, *columns: str) -> None:
        super().__init__(*columns)
        self.start: Counter[float] = Counter()

    def create(self) -> Counter[float]:
        return self.start


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_state_that_is_created_once_is_not_shared_by_keys(on: testing.On) -> None:
    rides = mr.read(RIDES).window(windows.fixed("1m"))
    script = testing.Script(
        mr.Job("modes", rides.group_by("line").aggregate(mode=CarelessMode("speed")).write(MODES)), on=on
    )
    seen = [("6", 5.0), ("6", 5.0), ("7", 3.0)]
    script.events(*({"line": line, "vehicle": "a", "speed": speed, "event_time": 1} for line, speed in seen))
    script.watermark("1m")
    assert sorted((pane["line"], pane["mode"]) for pane in script.panes()) == [("6", 5.0), ("7", 3.0)]


def chain(mode: type[Mode]) -> mr.Job:
    """The most frequent of the latest speeds of the vehicles of a line."""
    latest = (
        mr.read(RIDES).window(windows.fixed("1m"), lateness="1h").group_by("line", "vehicle").latest("speed")
    )
    return mr.Job("modes", latest.group_by("line").aggregate(mode=mode("speed")).write(MODES))


@pytest.mark.parametrize("on", ["model", "engine"])
@pytest.mark.parametrize("mode", [Mode, RetractingMode])
def test_a_user_defined_aggregate_follows_late_rows_through_a_chain(mode: type[Mode], on: testing.On) -> None:
    script = testing.Script(chain(mode), on=on)
    script.events(
        *(
            {"line": "6", "vehicle": v, "speed": s, "event_time": 1_000}
            for v, s in [("a", 5.0), ("b", 5.0), ("c", 7.0)]
        )
    )
    script.events({"line": "6", "vehicle": "d", "speed": None, "event_time": 1_000})
    script.watermark("1m")
    assert [pane["mode"] for pane in script.panes()] == [5.0]
    script.restart()
    script.events({"line": "6", "vehicle": "a", "speed": 7.0, "event_time": 2_000})
    assert [(pane["mode"], pane["timing"]) for pane in script.panes()] == [(7.0, "late")]


def test_with_retract_a_later_aggregation_keeps_one_state_instead_of_all_values() -> None:
    def kept(mode: type[Mode]) -> set[str]:
        later = Plan.of([chain(mode)], slots=1).stage(2)[0]
        return set(ChainedOperator(later).bag.empty.columns)

    assert "mode.v" in kept(RetractingMode)
    assert "speed" in kept(Mode)


def test_add_all_is_called_with_whole_columns() -> None:
    class Fast(Mode):
        def add(self, state: Any, value: Any) -> Any:
            raise AssertionError("a value at a time")

        def add_all(self, state: Counter[float], values: pl.Series) -> Counter[float]:
            state.update(values.to_list())
            return state

    rides = pl.DataFrame(
        {"line": "6", "vehicle": "a", "speed": [3.0, 4.0, None, 4.0], "event_time": [0, 1, 2, 3]}
    )
    job = mr.Job(
        "modes",
        mr.read(RIDES)
        .window(windows.fixed("1m"))
        .group_by("line")
        .aggregate(mode=Fast("speed"))
        .write(MODES),
    )
    assert mr.replay(job, rides)["mode"].to_list() == [4.0]


def test_several_columns_are_passed_as_dictionaries_with_nulls() -> None:
    class Fastest(Aggregate):
        returns = pl.String()

        def create(self) -> Any:
            return (0.0, None)

        def add(self, state: Any, value: Any) -> Any:
            return max(state, (value["speed"] or 0.0, value["vehicle"]))

        def merge(self, one: Any, other: Any) -> Any:
            return max(one, other)

        def result(self, state: Any) -> Any:
            return state[1]

    rides = pl.DataFrame(
        {"line": "6", "vehicle": ["a", "b", "c"], "speed": [3.0, 9.0, None], "event_time": [0, 1, 2]}
    )
    stream = (
        mr.read(RIDES)
        .window(windows.fixed("1m"))
        .group_by("line")
        .aggregate(vehicle=Fastest("vehicle", "speed"))
    )
    job = mr.Job("fastest", stream.with_columns(speed=pl.lit(0.0)).write(mr.Topic("analytics.fastest", Ride)))
    assert mr.replay(job, rides)["vehicle"].to_list() == ["b"]


def test_the_text_of_a_user_defined_aggregate_is_its_call_and_it_needs_a_type() -> None:
    class Power(Mode):
        def __init__(self, column: str, exponent: int) -> None:
            super().__init__(column)
            self.exponent = exponent

    class Silent(Mode):
        returns = None  # type: ignore[assignment] # what a user forgets

    assert str(aggregates.own(Power("speed", 2))) == "Power('speed', exponent=2)"
    with pytest.raises(DefinitionError, match="has no result type"):
        mr.read(RIDES).window(windows.fixed("1m")).group_by("line").aggregate(mode=Silent("speed"))
    with pytest.raises(DefinitionError, match="at least one column"):
        Mode()


def test_an_aggregate_that_is_not_reproducible_is_neither_aggregated_nor_retracted() -> None:
    rides = mr.read(RIDES).window(windows.fixed("1m"))
    middle = rides.group_by("line", "vehicle").quantiles("speed", [0.5], approx=True)
    with pytest.raises(DefinitionError, match="make it the last aggregation"):
        middle.group_by("line").count()
    with pytest.raises(DefinitionError, match="use accumulation='accumulating'"):
        mr.read(RIDES).window(windows.fixed("1m"), accumulation="retracting").group_by("line").quantiles(
            "speed", [0.5], approx=True
        )
    rides.group_by("line", "vehicle").distinct("speed", approx=True).group_by("line").count()
