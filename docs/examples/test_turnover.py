"""A unit test of the jobs in turnover.py."""

from datetime import date, timedelta
from decimal import Decimal

from turnover import busy, turnover

from millrace import testing


def test_totals_are_exact() -> None:
    """Ten cents and twenty cents are thirty cents."""
    script = testing.Script(turnover)
    script.events(
        {"shop": "a", "price": "0.10", "payment": "card", "waited": timedelta(minutes=3), "event_time": 0},
        {"shop": "a", "price": "0.20", "payment": "cash", "best_before": date(2024, 5, 31), "event_time": 1},
    )
    script.end()
    [pane] = script.panes()
    assert (pane["total"], pane["mean"]) == (Decimal("0.30"), Decimal("0.150000"))
    assert (pane["waited"], pane["oldest"]) == (timedelta(minutes=3), date(2024, 5, 31))


def test_another_job_reads_the_results() -> None:
    """Their type was made from the columns that the first job writes."""
    script = testing.Script(busy)
    script.events(
        {"shop": "a", "total": "1000.01", "event_time": 0}, {"shop": "b", "total": "999", "event_time": 0}
    )
    assert [row["shop"] for row in script.panes()] == ["a"]
