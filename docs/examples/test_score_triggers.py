"""Unit tests of the triggers and evictors of docs/concepts. Run: python -m pytest docs/examples"""

import pytest
from score_triggers import pauses, records
from scores import best_of_last, usual

from millrace import testing


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_record_is_shown_at_once(on: testing.On) -> None:
    """The others wait for the end of the window."""
    script = testing.Script(records, on=on)
    for at, points in enumerate((5, 3, 9)):
        script.events({"team": "red", "points": points, "event_time": at})
    script.watermark("20s")
    assert [(pane["points"], pane["timing"]) for pane in script.panes()] == [
        (5, "early"),
        (17, "early"),
        (17, "on_time"),
    ]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_session_is_shown_when_nothing_has_come_for_three_seconds(on: testing.On) -> None:
    """A session in which a row has come just now waits anew."""
    script = testing.Script(pauses, on=on)
    script.events({"team": "red", "points": 5, "event_time": 1_000})
    script.clock("2s")
    script.events({"team": "red", "points": 1, "event_time": 2_000})
    script.clock("3s")
    assert script.panes() == []
    script.restart()
    script.clock("5s")
    assert [(pane["points"], pane["timing"]) for pane in script.panes()] == [(6, "early")]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_evictors_leave_scores_out(on: testing.On) -> None:
    """A late score is judged with all others of its window."""
    for job, shown in ((best_of_last, [3]), (usual, [8])):
        script = testing.Script(job, on=on)
        for at, points in ((1, 5), (4, 3), (2, 90), (6, 0)):
            script.events({"team": "red", "points": points, "event_time": at * 1_000})
        script.watermark("20s")
        assert [pane["points"] for pane in script.panes()] == shown
