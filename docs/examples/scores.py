"""A game in which teams score points: one question, asked in all the ways that docs/concepts explains."""

from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import evictors, triggers, watermarks, windows


@dataclass
class Score:
    """A team scores."""

    team: str
    points: int


@dataclass
class Total:
    """What a team scored in a window."""

    team: str
    points: int


SCORES = mr.Topic("input.scores", Score, key="team")
TOTALS = mr.Topic("analytics.totals", Total, key="team")

fixed = mr.Job(
    "fixed",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(windows.fixed("10s"), lateness="15s")
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)

sliding = mr.Job(
    "sliding",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(windows.sliding("20s", every="10s"), lateness="15s")
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)

sessions = mr.Job(
    "sessions",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(windows.sessions("5s"), lateness="15s")
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)

threes = mr.Job(
    "threes",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(windows.counted(3))
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)

arrivals = mr.Job(
    "arrivals",
    mr.read(SCORES)
    .window(windows.processing_time(windows.fixed("10s")))
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)

hasty = mr.Job(
    "hasty",
    mr.read(SCORES, watermark=watermarks.bounded("0s"))
    .window(windows.fixed("10s"))
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)

patient = mr.Job(
    "patient",
    mr.read(SCORES, watermark=watermarks.bounded("12s"))
    .window(windows.fixed("10s"))
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)

quiet = mr.read(SCORES, watermark=watermarks.bounded("4s", idle="10s"))

once = mr.Job(
    "once",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(windows.fixed("10s"), trigger=triggers.at_watermark(late=triggers.never()), lateness="15s")
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)

early = mr.Job(
    "early",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(windows.fixed("20s"), trigger=triggers.at_watermark(early=triggers.every("5s")), lateness="15s")
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)

running = mr.Job(
    "running",
    mr.read(SCORES)
    .window(windows.global_window(), trigger=triggers.repeatedly(triggers.after_count(3)))
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)

best_of_last = mr.Job(
    "best-of-last",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(windows.fixed("20s"), lateness="15s", evict=evictors.last(2))
    .group_by("team")
    .max("points")
    .write(TOTALS),
)


def without_outliers(scores: pl.DataFrame) -> pl.Series:
    """Which scores are at most twice the median of the window."""
    return scores["points"] <= 2 * scores["points"].median()


usual = mr.Job(
    "usual",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(windows.fixed("20s"), evict=evictors.custom(without_outliers))
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)

deltas = mr.Job(
    "deltas",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(
        windows.fixed("20s"),
        trigger=triggers.at_watermark(early=triggers.every("5s")),
        lateness="15s",
        accumulation="discarding",
    )
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)

learned = mr.read(SCORES, watermark=watermarks.percentile(0.99, idle="10s"))

retracting = mr.Job(
    "retracting",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(windows.fixed("10s"), lateness="15s", accumulation="retracting")
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)


@dataclass
class Teams:
    """How many teams scored so many points."""

    points: int
    teams: int


ranking = mr.Job(
    "ranking",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(windows.fixed("10s"), lateness="15s")
    .group_by("team")
    .sum("points")
    .group_by("points")
    .count(name="teams")
    .write(mr.Topic("analytics.ranking", Teams)),
)
