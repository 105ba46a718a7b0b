"""Windows that share very much: sums that run along give what slices would, also where a number cannot be
taken out of a sum again.
"""

import math
from dataclasses import dataclass
from typing import Any

import pytest

import millrace as mr
from millrace import aggregates, testing, windows
from millrace.engine.operators.sliced_windows import SlicedWindowsOperator
from millrace.engine.plan import Plan


@dataclass
class Reading:
    key: str
    x: float
    n: int


@dataclass
class Answer:
    key: str
    rows: int
    total: float
    mean: float
    spread: float


READINGS = mr.Topic("input.readings", Reading)


def job(*, size: int = 60, **how: Any) -> mr.Job:
    rows = mr.read(READINGS).window(windows.sliding(size, every=1), **how).group_by("key")
    made = rows.aggregate(
        rows=aggregates.count(),
        total=aggregates.sum("x"),
        mean=aggregates.mean("n"),
        spread=aggregates.stddev("n"),
    )
    return mr.Job("answers", made.write(mr.Topic("analytics.answers", Answer)))


def machine(made: mr.Job) -> SlicedWindowsOperator:
    (operator,) = Plan.of([made], slots=1).operators
    return SlicedWindowsOperator(operator)


def test_sums_run_along_where_a_slice_is_in_many_windows() -> None:
    assert machine(job()).running is not None
    assert machine(job(size=15)).running is None


def play(on: testing.On) -> list[list[Any]]:
    """Rows in order, out of order, late, infinite, and some that leave with the first or last window of a
    step; a long silence; restarts.
    """
    script = testing.Script(job(lateness=20, accumulation="retracting"), on=on)
    seen = []
    steps: list[tuple[list[tuple[str, float, int, int]], int]] = [
        ([("a", 1.5, 1, 3), ("b", 2.5, 7, 5)], 4),
        ([("a", math.inf, 2, 10), ("a", 0.1, 3, 12), ("b", 4.0, 2, 14), ("b", 5.0, 2, 15)], 30),
        ([("a", 1e300, 4, 25), ("b", 1.0, 5, 29)], 31),
        ([("a", 2.0, 6, 2), ("c", -3.0, 1, 40), ("b", 6.0, 3, 49), ("b", 7.0, 3, 50)], 75),
        ([("a", 4.0, 1, 70), ("b", 9.0, 9, 60)], 110),
        ([], 500),
        ([("a", 8.0, 2, 495), ("a", 8.0, 2, 600)], 520),
    ]
    for rows, watermark in steps:
        script.events(*({"key": key, "x": x, "n": n, "event_time": at} for key, x, n, at in rows))
        script.restart()
        script.watermark(watermark)
        seen.append(sorted(repr(sorted(pane.items())) for pane in script.panes()))
    script.end()
    return [*seen, sorted(repr(sorted(pane.items())) for pane in script.panes())]


def test_the_engine_shows_what_the_model_shows_at_every_step() -> None:
    ours, theirs = play("engine"), play("model")
    for number, (actual, wanted) in enumerate(zip(ours, theirs, strict=True)):
        assert actual == wanted, number
    assert sum(map(len, ours)) > 300


@pytest.mark.slow
@pytest.mark.parametrize("size", [60, 600])
def test_sums_of_keys_that_are_gone_are_not_kept(size: int) -> None:
    script = testing.Script(job(size=size))
    for turn in range(30):
        at = turn * 2 * size
        script.events(*({"key": f"k{turn}-{n}", "x": 1.0, "n": n, "event_time": at} for n in range(20)))
        script.watermark(at + size)
    engine = script._backend.engine  # type: ignore[attr-defined]  # how much is kept shows in the state alone
    tables = [state.table("answers/aggregation-1", "sums") for state in engine.states.values()]
    assert sum(table.rows for table in tables) < 20 * 30
