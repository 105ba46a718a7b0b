"""Triggers of one's own, for the game of scores.py: docs/concepts/triggers.md explains them."""

from collections.abc import Mapping, Sequence
from typing import Any

from scores import SCORES, TOTALS

import millrace as mr
from millrace import state, triggers, watermarks, windows


class AtRecord(triggers.TriggerFn):
    """A pane whenever a team has scored more at once than ever before in the window."""

    record = state.value(0)

    def on_element(self, row: dict[str, Any], ctx: triggers.TriggerContext) -> triggers.TriggerResult:
        """One score."""
        if row["points"] <= self.record:
            return triggers.CONTINUE
        self.record = row["points"]
        return triggers.FIRE


records = mr.Job(
    "records",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(windows.fixed("20s"), trigger=triggers.at_watermark(early=AtRecord()))
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)


class AfterPause(triggers.TriggerFn):
    """A pane when no row has come for a while."""

    due = state.value(0)

    def __init__(self, pause: int) -> None:
        """`pause`: milliseconds of processing time."""
        self.pause = pause

    def on_element(self, row: dict[str, Any], ctx: triggers.TriggerContext) -> triggers.TriggerResult:
        """Each row puts the pane off."""
        ctx.cancel_timer(self.due, time="processing")
        self.due = ctx.now + self.pause
        ctx.set_timer(self.due, time="processing")
        return triggers.CONTINUE

    def on_processing_time(self, time: int, ctx: triggers.TriggerContext) -> triggers.TriggerResult:
        """None has come since."""
        return triggers.FIRE

    def on_merge(
        self, parts: Sequence[Mapping[str, Any]], ctx: triggers.TriggerContext
    ) -> triggers.TriggerResult:
        """The rows that are about to come put the pane of the merged session off, too."""
        return triggers.CONTINUE


pauses = mr.Job(
    "pauses",
    mr.read(SCORES, watermark=watermarks.bounded("4s"))
    .window(windows.sessions("20s"), trigger=triggers.at_watermark(early=AfterPause(3_000)))
    .group_by("team")
    .sum("points")
    .write(TOTALS),
)
