"""A unit test of the job in quiet.py."""

from quiet import gone_quiet

from millrace import testing


def test_a_user_who_does_nothing_for_half_a_minute_has_gone_quiet() -> None:
    """The timer moves with every click, and fires once."""
    script = testing.Script(gone_quiet)
    script.events(*({"user": "ann", "event_time": at} for at in (1_000, 20_000, 21_000)))
    script.watermark("50s")
    assert script.panes() == []
    script.watermark("51s")
    assert [(pane["user"], pane["clicks"], pane["event_time"]) for pane in script.panes()] == [
        ("ann", 3, 51_000)
    ]
    script.watermark("2h")
    assert script.panes() == []
