"""A small game: points by players of a team, with the times at which they were scored and seen."""

from dataclasses import dataclass
from typing import Any

import polars as pl

import millrace as mr
from millrace import watermarks, windows


@dataclass
class Score:
    team: str
    points: int


@dataclass
class Total:
    team: str
    points: int


SCORES = mr.Topic("input.scores", Score)
TOTALS = mr.Topic("analytics.totals", Total)


def totals(window: Any = None, **how: Any) -> mr.Job:
    read = mr.read(SCORES, watermark=watermarks.bounded("2s"))
    return mr.Job(
        "totals",
        read.window(window or windows.fixed("10s"), **{"lateness": "5s", **how})
        .group_by("team")
        .sum("points")
        .write(TOTALS),
    )


def scores(*rows: tuple[str, int, int, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["team", "points", "event_time", "ingestion_time"], orient="row")


GAME = scores(
    ("red", 5, 3_000, 4_000),
    ("red", 7, 9_000, 9_500),
    ("blue", 2, 8_000, 10_000),
    ("red", 1, 13_000, 14_000),
    ("red", 4, 6_000, 15_000),
    ("red", 9, 18_000, 19_000),
    ("red", 3, 2_000, 20_000),
)
"""The fifth is behind the watermark, the last too late."""
