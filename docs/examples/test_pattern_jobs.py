"""The examples of docs/how-to/patterns.md do what the page says."""

import polars as pl
from pattern_jobs import Payment, lows, suspicions, suspicions_in_sql

import millrace as mr

ROWS = [
    ("1234", 0.5, 0),
    ("1234", 20.0, 60),
    ("1234", 80.0, 120),
    ("9", 0.5, 0),
    ("9", 49.0, 60),
    ("9", 80.0, 700),
]
PAID = pl.DataFrame(
    [(card, amount, 60.0, 25.0, second * 1000) for card, amount, second in ROWS],
    schema=[*Payment.__dataclass_fields__, "event_time"],
    orient="row",
)


def test_a_probe_and_a_large_amount_are_found_by_the_pattern_and_in_sql() -> None:
    """Both jobs show the same match."""
    for job in (suspicions, suspicions_in_sql):
        shown = mr.replay(job, PAID).select("card", "probe", "amount", "window_start", "window_end")
        assert shown.rows() == [("1234", 0.5, 80.0, 0, 120_001)]


def test_sql_queries_frames() -> None:
    """A price that falls twice and rises."""
    prices = pl.DataFrame({"ticker": ["X"] * 4, "ts": [1, 2, 3, 4], "price": [10, 9, 7, 8]})
    assert lows(prices).rows() == [("X", 7, 8)]
