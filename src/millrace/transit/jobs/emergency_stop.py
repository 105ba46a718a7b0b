"""Vehicles that brake from travelling speed to a standstill within seconds."""

import polars as pl

from millrace import patterns
from millrace.durations import Duration
from millrace.patterns import Pattern, RowPattern, match_recognize, pattern
from millrace.stream import Job, Stream, read
from millrace.transit.jobs.parameters import watermark_from
from millrace.transit.topics import EMERGENCY_STOPS, POSITIONS


def hard_stop(within: Duration = "10s") -> Pattern:
    """Cruising, then braking and nothing else, then stopped.
    A row may be both braking and stopped: the first row at rest ends it.
    """
    return (
        pattern("cruising", pl.col("speed") >= 10)
        .next("braking", pl.col("acceleration") < 0).one_or_more().consecutive()
        .next("stopped", pl.col("speed") < 1)
        .within(within).skip_past_last()
    )  # fmt: skip


def hard_stop_in_sql(within: Duration = "10s") -> RowPattern:
    """The same as MATCH_RECOGNIZE.
    BRAKING is reluctant, so that the first row at rest ends it, though it may be braking, too.
    """
    return match_recognize(
        "CRUISING BRAKING+? STOPPED",
        define={"CRUISING": "speed >= 10", "BRAKING": "acceleration < 0", "STOPPED": "speed < 1"},
        measures={
            "latitude": "LAST(STOPPED.latitude)",
            "longitude": "LAST(STOPPED.longitude)",
            "speed_difference": "LAST(CRUISING.speed) - LAST(STOPPED.speed)",
            "deceleration": "MIN(BRAKING.acceleration)",
        },
        within=within,
    )


def emergency_stop(
    *, within: Duration = "10s", watermark: Duration = "5s", idle: Duration | None = "10s"
) -> Job:
    """By how much the speed fell, and how hard it was braked.
    A longer `watermark` finds more where links are slow, and later.
    """
    return Job(
        "emergency-stop",
        _read_movements(watermark, idle)
        .group_by("vehicle_id").match(
            hard_stop(within),
            select={
                "latitude": patterns.last("stopped", "latitude"),
                "longitude": patterns.last("stopped", "longitude"),
                "speed_difference": patterns.last("cruising", "speed") - patterns.last("stopped", "speed"),
                "deceleration": patterns.min("braking", "acceleration"),
            },
        )
        .write(EMERGENCY_STOPS),
    )  # fmt: skip


def emergency_stop_in_sql(
    *, within: Duration = "10s", watermark: Duration = "5s", idle: Duration | None = "10s"
) -> Job:
    """The same job with the row pattern, under the same name: its results are equal."""
    return Job(
        "emergency-stop",
        _read_movements(watermark, idle)
        .group_by("vehicle_id")
        .match_recognize(hard_stop_in_sql(within))
        .write(EMERGENCY_STOPS),
    )


def _read_movements(watermark: Duration, idle: Duration | None) -> Stream:
    """Each position once: links deliver some twice.
    Copies are known for as long as a pattern takes rows, which is until the watermark.
    """
    positions = read(POSITIONS, watermark=watermark_from(watermark, idle))
    moving = positions.select("vehicle_id", "latitude", "longitude", "speed", "acceleration")
    return moving.group_by("vehicle_id").deduplicate("event_time", within="1s")
