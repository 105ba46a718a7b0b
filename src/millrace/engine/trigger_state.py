"""Triggers as state machines: pure functions of a trigger, its state for one window, and what happened.

A state is plain JSON values. `add_rows` counts the rows of a batch; then, once per batch, `is_ready` says
whether the window fires, and `fire` what becomes of the state and whether the trigger has finished.
`merge_states` gives the state of a window that others grew into. For each trigger, what its state is:

    after_count(n)        how many rows came
    after_delay, every    the time it waits for, null before the first row
    every, time=event     [the time it waits for, whether also for the window's end], null before a row came
    at_watermark          [whether the pane on time has been, the state of `early` before and of `late` after]
    repeatedly            that of the trigger inside
    any_of                [state, …]          all_of   [[state, finished], …]
    in_order              [which one, state]  until    [state, state of the last one]
    a user's own          see `own_triggers.py`

`pass_time` calls the timers of a user's own triggers, before they are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from millrace import triggers as t
from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.engine import own_triggers
from millrace.triggers import Trigger
from millrace.windows import Window

TriggerState: TypeAlias = Any
"""Plain values that JSON knows."""

_EACH_BATCH = t.Repeatedly(t.AfterCount(1))
_NEVER = t.Never()


@dataclass(frozen=True)
class NewRows:
    """What a batch brought to a window."""

    count: int
    clock: int
    base: int
    """The watermark before the batch, or where there is none the window's start:
    multiples of event time are counted from there.
    """
    is_past_end: bool = False
    """Whether the watermark was past the window's end before the batch."""
    known_watermark: int | None = None
    """The watermark before the batch, for triggers of a user's own."""
    window: Window = (0, 0)
    """The window, for the same."""
    rows: Sequence[dict[str, Any]] = ()
    """The rows themselves in order, for the same."""
    time_passes = False


@dataclass(frozen=True)
class FiringContext:
    """When a window is looked at."""

    watermark: int
    clock: int
    is_past_end: bool
    """Whether the watermark has passed the window's end."""
    is_clock_past_end: bool
    """Whether the clock has."""
    window: Window = (0, 0)
    """The window, for triggers of a user's own."""
    time_passes = True

    @property
    def known_watermark(self) -> int | None:
        """The watermark; none before the first row."""
        return None if self.watermark == BEFORE_ALL else self.watermark


@dataclass(frozen=True)
class Deadline:
    """A time for which a trigger waits; null is the window's end."""

    at: int | None
    is_clock: bool


def initial_state(trigger: Trigger, moment: NewRows | FiringContext | None = None) -> TriggerState:
    """The state before the first row; `moment` is when the trigger begins, for those of a user's own."""
    match trigger:
        case t.AfterCount():
            return 0
        case t.AtWatermark():
            return [False, initial_state(_early(trigger), moment)]
        case t.Repeatedly(trigger=inner):
            return initial_state(inner, moment)
        case t.AnyOf(triggers=inner):
            return [initial_state(part, moment) for part in inner]
        case t.AllOf(triggers=inner):
            return [[initial_state(part, moment), False] for part in inner]
        case t.InOrder(triggers=inner):
            return [0, initial_state(inner[0], moment)]
        case t.Until(trigger=main, last=last):
            return [initial_state(main, moment), initial_state(last, moment)]
        case t.TriggerFn():
            return own_triggers.start(trigger, moment)
        case _:
            return None


def add_rows(trigger: Trigger, state: TriggerState, rows: NewRows) -> TriggerState:
    """The state after rows came."""
    match trigger:
        case t.AfterCount():
            return state + rows.count
        case t.AfterDelay(delay=delay):
            return rows.clock + delay if state is None else state
        case t.Every(period=period):
            return _multiple_above(rows.clock, period) if state is None else state
        case t.EveryEventTime(period=period):
            return [_multiple_above(rows.base, period), not rows.is_past_end] if state is None else state
        case t.AtWatermark():
            return [state[0], add_rows(_late(trigger) if state[0] else _early(trigger), state[1], rows)]
        case t.Repeatedly(trigger=inner):
            return add_rows(inner, state, rows)
        case t.AnyOf(triggers=inner):
            return [add_rows(part, part_state, rows) for part, part_state in zip(inner, state, strict=True)]
        case t.AllOf(triggers=inner):
            return [
                [part_state if done else add_rows(part, part_state, rows), done]
                for part, (part_state, done) in zip(inner, state, strict=True)
            ]
        case t.InOrder(triggers=inner):
            return [state[0], add_rows(inner[state[0]], state[1], rows)]
        case t.Until(trigger=main, last=last):
            return [add_rows(main, state[0], rows), add_rows(last, state[1], rows)]
        case t.TriggerFn():
            return own_triggers.add_rows(trigger, state, rows)
        case _:
            return state


def pass_time(trigger: Trigger, state: TriggerState, context: FiringContext) -> TriggerState:
    """The state once the timers of a user's own triggers were called; others know the time when asked."""
    match trigger:
        case t.TriggerFn():
            return own_triggers.pass_time(trigger, state, context)
        case t.AtWatermark():
            return [state[0], pass_time(_late(trigger) if state[0] else _early(trigger), state[1], context)]
        case t.Repeatedly(trigger=inner):
            return pass_time(inner, state, context)
        case t.AnyOf() | t.Until():
            return [
                pass_time(part, part_state, context)
                for part, part_state in zip(trigger.inner, state, strict=True)
            ]
        case t.AllOf(triggers=inner):
            return [
                [part_state if done else pass_time(part, part_state, context), done]
                for part, (part_state, done) in zip(inner, state, strict=True)
            ]
        case t.InOrder(triggers=inner):
            return [state[0], pass_time(inner[state[0]], state[1], context)]
        case _:
            return state


def is_ready(  # noqa: C901 - a table, one entry for each trigger
    trigger: Trigger, state: TriggerState, context: FiringContext
) -> bool:
    """Whether the window fires now."""
    match trigger:
        case t.AfterCount(rows=count):
            return bool(state >= count)
        case t.AfterDelay() | t.Every():
            return state is not None and context.clock >= state
        case t.EveryEventTime():
            at, ends = _event_times(state)
            return at is not None and (context.watermark >= at or (ends and context.is_past_end))
        case t.AtWatermark():
            return (
                is_ready(_late(trigger), state[1], context)
                if state[0]
                else context.is_past_end or is_ready(_early(trigger), state[1], context)
            )
        case t.Repeatedly(trigger=inner):
            return is_ready(inner, state, context)
        case t.AnyOf(triggers=inner):
            return any(
                is_ready(part, part_state, context) for part, part_state in zip(inner, state, strict=True)
            )
        case t.AllOf(triggers=inner):
            return all(
                done or is_ready(part, part_state, context)
                for part, (part_state, done) in zip(inner, state, strict=True)
            )
        case t.InOrder(triggers=inner):
            return is_ready(inner[state[0]], state[1], context)
        case t.Until(trigger=main, last=last):
            return is_ready(main, state[0], context) or is_ready(last, state[1], context)
        case t.AtWindowEnd():
            return context.is_clock_past_end
        case t.AtEnd():
            return context.watermark >= END_OF_STREAM
        case t.TriggerFn():
            return own_triggers.is_ready(state)
        case _:
            return False


def fire(trigger: Trigger, state: TriggerState, context: FiringContext) -> tuple[TriggerState, bool]:
    """The state after the window fired, and whether the trigger has finished; only for what is ready."""
    match trigger:
        case t.Every() | t.EveryEventTime():
            return None, False
        case t.AtWatermark():
            return _fire_at_watermark(trigger, state, context)
        case t.Repeatedly(trigger=inner):
            after, finished = fire(inner, state, context)
            return initial_state(inner, context) if finished else after, False
        case t.AnyOf(triggers=inner):
            pairs = [
                fire(part, part_state, context)
                if is_ready(part, part_state, context)
                else (part_state, False)
                for part, part_state in zip(inner, state, strict=True)
            ]
            return [part_state for part_state, _ in pairs], any(finished for _, finished in pairs)
        case t.AllOf(triggers=inner):
            both = [
                (part_state, True) if done else fire(part, part_state, context)
                for part, (part_state, done) in zip(inner, state, strict=True)
            ]
            return [[part_state, done] for part_state, done in both], all(done for _, done in both)
        case t.InOrder(triggers=inner):
            after, finished = fire(inner[state[0]], state[1], context)
            if not finished or state[0] + 1 == len(inner):
                return [state[0], after], finished
            return [state[0] + 1, initial_state(inner[state[0] + 1], context)], False
        case t.Until(trigger=main, last=last):
            if is_ready(last, state[1], context):
                return state, True
            after, finished = fire(main, state[0], context)
            return [after, state[1]], finished
        case t.TriggerFn():
            return own_triggers.fire(trigger, state, context)
        case _:
            return state, True


def merge_states(trigger: Trigger, states: Sequence[TriggerState], rows: NewRows) -> TriggerState:
    """The state of a window made of several, or of one that grew, before `rows` are added to it."""
    match trigger:
        case t.AfterCount():
            return sum(states)
        case t.AfterDelay() | t.Every():
            return min((state for state in states if state is not None), default=None)
        case t.EveryEventTime():
            times = [at for at, _ in map(_event_times, states) if at is not None]
            return [min(times), not rows.is_past_end] if times else None
        case t.AtWatermark():
            return _merge_at_watermark(trigger, states, rows)
        case t.Repeatedly(trigger=inner):
            return merge_states(inner, states, rows)
        case t.AnyOf(triggers=inner):
            return _merge_each(inner, states, rows)
        case t.AllOf(triggers=inner):
            return [_merge_all_of(part, [state[i] for state in states], rows) for i, part in enumerate(inner)]
        case t.InOrder(triggers=inner):
            furthest = max(which for which, _ in states)
            part_states = [part_state for which, part_state in states if which == furthest]
            return [furthest, merge_states(inner[furthest], part_states, rows)]
        case t.Until(trigger=main, last=last):
            return _merge_each((main, last), states, rows)
        case t.TriggerFn():
            return own_triggers.merge(trigger, states, rows)
        case _:
            return states[0]


def deadlines(trigger: Trigger, state: TriggerState) -> Iterator[Deadline]:
    """Every time for which the trigger waits, though no row should come."""
    match trigger:
        case t.AfterDelay() | t.Every() if state is not None:
            yield Deadline(state, is_clock=True)
        case t.EveryEventTime() if state is not None:
            at, ends = _event_times(state)
            yield Deadline(at, is_clock=False)
            if ends:
                yield Deadline(None, is_clock=False)
        case t.AtWatermark():
            if not state[0]:
                yield Deadline(None, is_clock=False)
            yield from deadlines(_late(trigger) if state[0] else _early(trigger), state[1])
        case t.AtWindowEnd():
            yield Deadline(None, is_clock=True)
        case t.AtEnd():
            yield Deadline(END_OF_STREAM, is_clock=False)
        case t.TriggerFn():
            yield from (Deadline(at, is_clock=is_clock) for at, is_clock in own_triggers.timers(state))
        case _:
            for part, part_state in _active_parts(trigger, state):
                yield from deadlines(part, part_state)


def _active_parts(trigger: Trigger, state: TriggerState) -> Iterator[tuple[Trigger, TriggerState]]:
    """The triggers inside that still count, with their states."""
    match trigger:
        case t.Repeatedly(trigger=inner):
            yield inner, state
        case t.AnyOf() | t.Until():
            yield from zip(trigger.inner, state, strict=True)
        case t.AllOf(triggers=inner):
            yield from (
                (part, part_state) for part, (part_state, done) in zip(inner, state, strict=True) if not done
            )
        case t.InOrder(triggers=inner):
            yield inner[state[0]], state[1]


def _early(trigger: t.AtWatermark) -> Trigger:
    return _NEVER if trigger.early is None else t.Repeatedly(trigger.early)


def _late(trigger: t.AtWatermark) -> Trigger:
    return _EACH_BATCH if trigger.late is None else t.Repeatedly(trigger.late)


def _fire_at_watermark(
    trigger: t.AtWatermark, state: TriggerState, context: FiringContext
) -> tuple[TriggerState, bool]:
    if not state[0] and context.is_past_end:
        return [True, initial_state(_late(trigger), context)], trigger.has_single_pane
    after, _ = fire(_late(trigger) if state[0] else _early(trigger), state[1], context)
    return [state[0], after], False


def _merge_at_watermark(
    trigger: t.AtWatermark, states: Sequence[TriggerState], rows: NewRows
) -> TriggerState:
    """Only if all windows had their pane on time, the merged one had it; otherwise it still waits for it."""
    if rows.is_past_end and all(settled for settled, _ in states):
        late_states = [part_state for _, part_state in states]
        return [True, merge_states(_late(trigger), late_states, rows)]
    early_states = [part_state for settled, part_state in states if not settled] or [
        initial_state(_early(trigger), rows)
    ]
    return [False, merge_states(_early(trigger), early_states, rows)]


def _merge_each(
    triggers: Sequence[Trigger], states: Sequence[Sequence[TriggerState]], rows: NewRows
) -> TriggerState:
    """A merged state for each of the triggers inside."""
    return [merge_states(part, [state[i] for state in states], rows) for i, part in enumerate(triggers)]


def _merge_all_of(trigger: Trigger, states: Sequence[TriggerState], rows: NewRows) -> TriggerState:
    unfinished = [part_state for part_state, done in states if not done]
    return [merge_states(trigger, unfinished, rows), False] if unfinished else states[0]


def _event_times(state: TriggerState) -> tuple[int | None, bool]:
    """What `every(..., time="event")` waits for: a time, and whether also for the window's end."""
    return (None, False) if state is None else (state[0], state[1])


def _multiple_above(at: int, period: int) -> int:
    return (at // period + 1) * period
