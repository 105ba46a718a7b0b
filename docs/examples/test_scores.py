"""Unit tests of the jobs in scores.py, as docs/how-to/test-your-job.md explains them.
Run: pytest docs/examples
"""

import polars as pl
import pytest
from scores import TOTALS, fixed, ranking

import millrace as mr
from millrace import testing


def test_points_are_summed_per_team_and_window() -> None:
    """Events in, panes out."""
    script = testing.Script(fixed)
    script.events(
        {"team": "red", "points": 5, "event_time": 3_000},
        {"team": "red", "points": 9, "event_time": 7_000},
        {"team": "blue", "points": 2, "event_time": 9_000},
    )
    assert script.panes() == []
    script.watermark("10s")
    assert {pane["team"]: pane["points"] for pane in script.panes()} == {"red": 14, "blue": 2}


def test_a_late_score_corrects_the_total() -> None:
    """Within the lateness a window is shown anew."""
    script = testing.Script(fixed)
    script.events({"team": "red", "points": 5, "event_time": 3_000})
    script.watermark("10s")
    script.events({"team": "red", "points": 1, "event_time": 4_000})
    first, second = script.panes(TOTALS)
    assert (first["points"], first["timing"], first["index"]) == (5, "on_time", 0)
    assert (second["points"], second["timing"], second["index"]) == (6, "late", 1)


def test_a_score_that_comes_too_late_is_refused() -> None:
    """The lateness is 15 s, so the first window is forgotten at 25 s."""
    script = testing.Script(fixed)
    script.watermark("25s")
    script.events({"team": "red", "points": 1, "event_time": 9_999})
    assert script.late() == [{"team": "red", "points": 1, "event_time": 9_999, "reason": "late", "missed": 1}]


def test_nothing_is_forgotten_over_a_restart() -> None:
    """All state goes to bytes and back."""
    script = testing.Script(fixed)
    script.events({"team": "red", "points": 5, "event_time": 3_000})
    script.restart()
    script.events({"team": "red", "points": 9, "event_time": 7_000})
    script.watermark("10s")
    assert [pane["points"] for pane in script.panes()] == [14]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_slow_partition_holds_the_result_back(on: testing.On) -> None:
    """The watermark is the least of all partitions'; the model and the engine agree."""
    script = testing.Script(fixed, on=on, partitions=2)
    script.events({"team": "red", "points": 5, "event_time": 3_000}, partition=0)
    script.watermark("10s", partition=0)
    assert script.panes() == []
    script.watermark("10s", partition=1)
    assert len(script.panes()) == 1


def test_a_late_score_moves_a_team_to_another_rank() -> None:
    """Retractions travel down a chain, so that no team is counted twice."""
    script = testing.Script(ranking)
    script.events(
        {"team": "red", "points": 5, "event_time": 3_000}, {"team": "blue", "points": 5, "event_time": 4_000}
    )
    script.watermark("10s")
    assert [(pane["points"], pane["teams"]) for pane in script.panes()] == [(5, 2)]
    script.events({"team": "red", "points": 1, "event_time": 5_000})
    assert sorted((pane["points"], pane["teams"]) for pane in script.panes()) == [(5, 1), (6, 1)]


def test_a_recorded_game_ends_as_it_ended() -> None:
    """The job as it is, with its own watermark, over events that are all there."""
    events = pl.DataFrame(
        {"team": ["red", "red", "blue"], "points": [5, 9, 2], "event_time": [3_000, 7_000, 12_000]}
    )
    panes = mr.replay(fixed, events)
    totals = panes.select("team", "window_start", "points").sort("window_start")
    assert totals.rows() == [("red", 0, 14), ("blue", 10_000, 2)]
