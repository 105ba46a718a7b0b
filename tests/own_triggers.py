"""Each trigger of the package once more, as users would write it: what both do must be the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millrace import durations, state, triggers
from millrace.triggers import CONTINUE, FINISH, FIRE, Trigger, TriggerContext, TriggerFn, TriggerResult
from millrace.windows import FOREVER

Row = dict[str, Any]
Parts = Sequence[Mapping[str, Any]]


class OwnNever(TriggerFn):
    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_merge(self, parts: Parts, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE


class OwnCount(TriggerFn):
    count = state.value(0)

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        self.count += 1
        return self.answer()

    def on_merge(self, parts: Parts, ctx: TriggerContext) -> TriggerResult:
        self.count = sum(part["count"] for part in parts)
        return self.answer()

    def answer(self) -> TriggerResult:
        return FINISH if self.count >= self.rows else CONTINUE


class OwnDelay(TriggerFn):
    due: state.ValueState[int | None] = state.value(None)

    def __init__(self, delay: int) -> None:
        self.delay = delay

    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        if self.due is None:
            self.due = ctx.now + self.delay
            ctx.set_timer(self.due, time="processing")
        return CONTINUE

    def on_processing_time(self, time: int, ctx: TriggerContext) -> TriggerResult:
        return FINISH

    def on_merge(self, parts: Parts, ctx: TriggerContext) -> TriggerResult:
        self.due = min((part["due"] for part in parts if part["due"] is not None), default=None)
        if self.due is not None:
            ctx.set_timer(self.due, time="processing")
        return CONTINUE


class OwnEvery(OwnDelay):
    """As the delay, to the next multiple, and again."""

    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        if self.due is None:
            self.due = (ctx.now // self.delay + 1) * self.delay
            ctx.set_timer(self.due, time="processing")
        return CONTINUE

    def on_processing_time(self, time: int, ctx: TriggerContext) -> TriggerResult:
        return FIRE

    def on_fire(self, ctx: TriggerContext) -> None:
        self.due = None


class OwnEveryEventTime(TriggerFn):
    at: state.ValueState[int | None] = state.value(None)

    def __init__(self, period: int) -> None:
        self.period = period

    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        if self.at is None:
            start = row["event_time"] if ctx.window == FOREVER else ctx.window[0]
            base = start if ctx.watermark is None else ctx.watermark
            self.at = (base // self.period + 1) * self.period
            self.wait(ctx)
        return CONTINUE

    def wait(self, ctx: TriggerContext) -> None:
        """For the multiple, and for the end of the window if that is still to come."""
        if self.at is not None:
            if durations.MIN_TIME <= self.at <= durations.MAX_TIME:
                ctx.set_timer(self.at)
            if ctx.watermark is None or ctx.watermark < ctx.window[1]:
                ctx.set_timer(ctx.window[1])

    def on_event_time(self, time: int, ctx: TriggerContext) -> TriggerResult:
        return FIRE

    def on_fire(self, ctx: TriggerContext) -> None:
        if self.at is not None:
            ctx.cancel_timer(self.at)
            ctx.cancel_timer(ctx.window[1])
        self.at = None

    def on_merge(self, parts: Parts, ctx: TriggerContext) -> TriggerResult:
        self.at = min((part["at"] for part in parts if part["at"] is not None), default=None)
        self.wait(ctx)
        return CONTINUE


class OwnAtWatermark(TriggerFn):
    """On time, then for each batch that brings late rows; or finished with the first."""

    is_settled = state.value(False)
    is_new = state.value(False)

    def __init__(self, *, once: bool) -> None:
        self.once = once

    def on_start(self, ctx: TriggerContext) -> None:
        if ctx.watermark is None or ctx.watermark < ctx.window[1]:
            ctx.set_timer(ctx.window[1])

    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        if not self.is_settled:
            ctx.set_timer(ctx.window[1])
            return CONTINUE
        self.is_new = True
        return FIRE

    def on_event_time(self, time: int, ctx: TriggerContext) -> TriggerResult:
        return FINISH if self.once else FIRE

    def on_fire(self, ctx: TriggerContext) -> None:
        self.is_settled, self.is_new = True, False

    def on_merge(self, parts: Parts, ctx: TriggerContext) -> TriggerResult:
        is_past = ctx.watermark is not None and ctx.watermark >= ctx.window[1]
        self.is_settled = is_past and all(part["is_settled"] for part in parts)
        self.is_new = self.is_settled and any(part["is_new"] for part in parts)
        if not self.is_settled:
            ctx.set_timer(ctx.window[1])
        return FIRE if self.is_new else CONTINUE


class OwnAtWindowEnd(TriggerFn):
    def on_start(self, ctx: TriggerContext) -> None:
        if ctx.now < ctx.window[1]:
            ctx.set_timer(ctx.window[1], time="processing")

    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        ctx.set_timer(ctx.window[1], time="processing")
        return CONTINUE

    def on_processing_time(self, time: int, ctx: TriggerContext) -> TriggerResult:
        return FINISH

    def on_merge(self, parts: Parts, ctx: TriggerContext) -> TriggerResult:
        ctx.set_timer(ctx.window[1], time="processing")
        return CONTINUE


class OwnAtEnd(TriggerFn):
    """No watermark but that of the end comes to the last time of all."""

    def on_start(self, ctx: TriggerContext) -> None:
        ctx.set_timer(durations.MAX_TIME)

    def on_element(self, row: Row, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_event_time(self, time: int, ctx: TriggerContext) -> TriggerResult:
        return FINISH

    def on_merge(self, parts: Parts, ctx: TriggerContext) -> TriggerResult:
        ctx.set_timer(durations.MAX_TIME)
        return CONTINUE


def to_own(trigger: Trigger) -> Trigger:  # noqa: C901 - a table, one entry for each trigger
    """The same trigger, with each part that is not made of others as users would write it."""
    match trigger:
        case triggers.Never():
            return OwnNever()
        case triggers.AfterCount(rows=rows):
            return OwnCount(rows)
        case triggers.AfterDelay(delay=delay):
            return OwnDelay(delay)
        case triggers.Every(period=period):
            return OwnEvery(period)
        case triggers.EveryEventTime(period=period):
            return OwnEveryEventTime(period)
        case triggers.AtWatermark(early=None, late=None):
            return OwnAtWatermark(once=False)
        case triggers.AtWatermark(early=None, late=triggers.Never()):
            return OwnAtWatermark(once=True)
        case triggers.AtWatermark(early=early, late=late):
            keeps = late is None or isinstance(late, triggers.Never)
            return triggers.AtWatermark(
                None if early is None else to_own(early), late if keeps or late is None else to_own(late)
            )
        case triggers.AtWindowEnd():
            return OwnAtWindowEnd()
        case triggers.AtEnd():
            return OwnAtEnd()
        case triggers.Repeatedly(trigger=inner):
            return triggers.Repeatedly(to_own(inner))
        case triggers.Until(trigger=main, last=last):
            return triggers.Until(to_own(main), to_own(last))
        case (
            triggers.AnyOf(triggers=parts) | triggers.AllOf(triggers=parts) | triggers.InOrder(triggers=parts)
        ):
            return type(trigger)(tuple(map(to_own, parts)))
        case _:
            raise TypeError(trigger)
