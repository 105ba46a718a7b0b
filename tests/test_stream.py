"""What the user chains: it records a graph, and refuses what could not run, by value and remedy."""

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import aggregates, graph, windows
from millrace.errors import DefinitionError
from millrace.stream import Stream


@dataclass
class Position:
    vehicle: str
    cell: int
    speed: float | None


@dataclass
class Count:
    cell: int
    count: int


POSITIONS, COUNTS = mr.Topic("input.positions", Position), mr.Topic("analytics.counts", Count)


def positions() -> Stream:
    return mr.read(POSITIONS).window(windows.fixed("10s"))


def corrected() -> Stream:
    """Counts that late rows correct."""
    return positions().window(windows.fixed("1s"), lateness="1s").group_by("cell").count()


def counts() -> Stream:
    return positions().group_by("vehicle").latest("cell").group_by("cell").count()


def test_a_stream_is_never_changed() -> None:
    stream = mr.read(POSITIONS)
    stream.filter(pl.col("cell") > 1).with_columns(twice=pl.col("cell") * 2)
    assert stream.columns == ["vehicle", "cell", "speed", "event_time", "ingestion_time"]


def test_results_have_key_aggregates_time_and_pane_columns() -> None:
    assert counts().columns == [
        *("cell", "count", "event_time", "window_start", "window_end"),
        *("index", "settled_index", "timing", "final", "op"),
    ]


def test_types_follow_the_columns() -> None:
    made = (
        positions()
        .group_by("vehicle")
        .aggregate(
            n=aggregates.count(),
            top=aggregates.max("speed"),
            mean=aggregates.mean("cell"),
            cells=aggregates.collect("cell"),
            total=aggregates.sum("cell"),
        )
    )
    schema = made.node.schema
    assert (schema["n"], schema["top"], schema["mean"], schema["total"]) == (
        pl.Int64(),
        pl.Float64(),
        pl.Float64(),
        pl.Int64(),
    )
    assert schema["cells"] == pl.List(pl.Int64)


def test_select_keeps_the_times() -> None:
    assert mr.read(POSITIONS).select("cell").columns == ["cell", "event_time", "ingestion_time"]


def test_a_windowing_is_kept_until_set_again() -> None:
    same = counts().node
    again = (
        positions()
        .group_by("vehicle")
        .latest("cell")
        .window(windows.fixed("10s"))
        .group_by("cell")
        .count()
        .node
    )
    assert isinstance(same, graph.Aggregation)
    assert isinstance(again, graph.Aggregation)
    assert same.same_window
    assert not again.same_window


def test_operators_are_named_by_job_and_place_or_by_the_name_given() -> None:
    job = mr.Job(
        "traffic",
        positions().group_by("vehicle").latest("cell").named("newest").group_by("cell").count().write(COUNTS),
    )
    assert list(job.operator_ids.values()) == ["traffic/newest", "traffic/aggregation-2"]


def test_a_step_added_before_does_not_rename_operators() -> None:
    plain = mr.Job("traffic", counts().write(COUNTS))
    filtered = mr.read(POSITIONS).filter(pl.col("cell") > 0).window(windows.fixed("10s"))
    other = mr.Job(
        "traffic", filtered.group_by("vehicle").latest("cell").group_by("cell").count().write(COUNTS)
    )
    assert list(plain.operator_ids.values()) == list(other.operator_ids.values())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: positions().group_by("wheel"),
            "group_by('wheel'): there is no column 'wheel'; there are vehicle, cell, speed",
        ),
        (lambda: positions().group_by(), "group_by() names no column"),
        (
            lambda: positions().group_by("event_time"),
            "name the copy: group_by(my_event_time=pl.col('event_time'))",
        ),
        (lambda: counts().group_by("timing"), "results have a column 'timing' of their own"),
        (lambda: counts().group_by("cell").max("index", name="last"), "'index' says how a pane came about"),
        (
            lambda: counts().filter(pl.col("timing") == "late").group_by("cell").sum("count"),
            "move it after the last aggregation",
        ),
        (lambda: positions().group_by("cell").aggregate(), "at least one aggregate"),
        (
            lambda: positions().group_by("cell").sum("vehicle"),
            "sum('vehicle') needs numbers, but 'vehicle' is String",
        ),
        (lambda: positions().group_by("cell").mean("weight"), "there is no column 'weight'"),
        (lambda: positions().group_by("cell").aggregate(cell=aggregates.count()), "cannot be named 'cell'"),
        (
            lambda: positions().group_by("cell").aggregate(window_end=aggregates.count()),
            "cannot be named 'window_end'",
        ),
        (lambda: positions().group_by("cell").aggregate(n=len), "is not an aggregate"),  # type: ignore[arg-type]
        (
            lambda: positions().filter(pl.col("weight") > 1),
            "no column 'weight'; there are vehicle, cell",
        ),
        (lambda: positions().map_batches(lambda frame: frame.drop("event_time")), "loses event_time"),
        (lambda: positions().map_batches(lambda frame: frame["cell"]), "must return a polars DataFrame"),  # type: ignore[arg-type, return-value]
        (lambda: positions().write(COUNTS), "lacks count"),
        (lambda: counts().with_columns(more=pl.lit(1)).write(COUNTS), "has more besides"),
        (lambda: positions().late(), "late() follows an aggregation"),
        (lambda: counts().late(), "ask the first one"),
        (
            lambda: positions().window(windows.fixed("1s"), accumulation="all"),  # type: ignore[arg-type]
            "accumulation='all' is unknown; use one of 'accumulating', 'discarding'",
        ),
        (lambda: positions().window(windows.fixed("1s"), closing="yes"), "closing='yes' is unknown"),  # type: ignore[arg-type]
        (lambda: positions().window("1s"), "window('1s') is not a window"),  # type: ignore[arg-type]
        (
            lambda: positions().window(windows.fixed("1s"), trigger="often"),  # type: ignore[arg-type]
            "trigger='often' is not a trigger",
        ),
        (lambda: positions().window(windows.counted(3), lateness="1s"), "leave out trigger, lateness"),
        (
            lambda: positions().window(windows.delta("vehicle", 1)).group_by("cell").count(),
            "needs a number, but that is String",
        ),
        (
            lambda: positions().window(windows.punctuated(pl.col("last"))).group_by("cell").count(),
            "there is no column 'last'; there are vehicle, cell",
        ),
        (
            lambda: positions().window(windows.fixed("1s", offset=pl.col("speed"))).group_by("cell").count(),
            "needs a whole number",
        ),
        (
            lambda: corrected().window(windows.sessions("1s")).group_by("cell").count(),
            "leave out the second window()",
        ),
        (
            lambda: (
                positions()
                .window(windows.fixed("1s"), time="latest")
                .group_by("cell")
                .count()
                .window(windows.fixed("9s"))
                .group_by("cell")
                .count()
            ),
            "use time='end'",
        ),
        (
            lambda: (
                corrected().window(windows.fixed("1s"), accumulation="discarding").group_by("cell").count()
            ),
            "use accumulation='accumulating'",
        ),
        (
            lambda: positions().window(windows.fixed("1s"), lateness="-1s"),
            "lateness='-1s' must not be negative",
        ),
        (lambda: mr.Job("a b", counts().write(COUNTS)), "job name 'a b'"),
        (lambda: mr.Job("job"), "has no output"),
        (lambda: mr.Job("job", counts()), "call .write(topic) on it"),  # type: ignore[arg-type]
    ],
)
def test_what_could_not_run_is_refused_by_value_and_remedy(make: Any, message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        make()
    assert message in str(refused.value)


def test_panes_may_be_chosen_by_how_they_came_about_where_they_leave_the_job() -> None:
    assert mr.Job("final-only", counts().filter(pl.col("final")).write(COUNTS)).outputs
    assert (
        "twice"
        in counts()
        .filter(pl.col("window_end") > 0)
        .select("cell", twice=pl.col("count") * 2)
        .group_by("cell")
        .sum("twice")
        .columns
    )


def test_two_operators_of_one_name_cannot_be_told_apart() -> None:
    stream = (
        positions().group_by("vehicle").latest("cell").named("same").group_by("cell").count().named("same")
    )
    with pytest.raises(DefinitionError, match="two operators of job 'job' are named 'same'"):
        _ = mr.Job("job", stream.write(COUNTS)).operator_ids


def test_a_join_is_named_though_its_rows_are_made_behind_it() -> None:
    windowed = positions().select("cell", "speed")
    joined = windowed.group_by("cell").join(windowed.group_by("cell")).named("pairs")
    assert [*mr.Job("j", joined.select("cell", count=pl.lit(1)).write(COUNTS)).operator_ids.values()] == [
        "j/pairs"
    ]
