"""Triggers as state machines: pure functions of a trigger, its state for one window, and what happened.

A state is plain JSON values. Rows are told by `taken`; then, once per batch, `ready` says whether the window fires, and `fired` what
becomes of the state and whether the trigger has finished. `merged` is the state of a window that others grew into.

    after_count(n)        how many rows came
    after_delay, every    the time it waits for, null before the first row
    every_event_time      [the time it waits for, whether also for the window's end], null before the first row
    at_watermark          [whether the pane on time has been, the state of `early` before and of `late` after]
    repeatedly            that of the trigger inside
    any_of                [state, …]          all_of   [[state, finished], …]
    in_order              [which one, state]  until    [state, state of the last one]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from millrace import triggers as t
from millrace.triggers import Trigger

State: TypeAlias = Any
"""Plain values that JSON knows."""

END = 2**62
"""The watermark of a stream that has ended."""

_EACH_BATCH = t.Repeatedly(t.AfterCount(1))
_NEVER = t.Never()


@dataclass(frozen=True)
class Rows:
    """What a batch brought to a window."""

    count: int
    clock: int
    base: int
    """The watermark before the batch, or where there is none the window's start: multiples of event time are counted from there."""
    passed: bool = False
    """Whether the watermark was past the window's end before the batch."""


@dataclass(frozen=True)
class Moment:
    """When a window is looked at."""

    watermark: int
    clock: int
    passed: bool
    """Whether the watermark has passed the window's end."""
    elapsed: bool
    """Whether the clock has."""


@dataclass(frozen=True)
class Due:
    """A time for which a trigger waits; null is the window's end."""

    at: int | None
    clock: bool


def begin(trigger: Trigger) -> State:
    """The state before the first row."""
    match trigger:
        case t.AfterCount():
            return 0
        case t.AtWatermark():
            return [False, begin(_early(trigger))]
        case t.Repeatedly(trigger=inner):
            return begin(inner)
        case t.AnyOf(triggers=inner):
            return [begin(one) for one in inner]
        case t.AllOf(triggers=inner):
            return [[begin(one), False] for one in inner]
        case t.InOrder(triggers=inner):
            return [0, begin(inner[0])]
        case t.Until(trigger=main, last=last):
            return [begin(main), begin(last)]
        case _:
            return None


def taken(trigger: Trigger, state: State, rows: Rows) -> State:
    """The state after rows came."""
    match trigger:
        case t.AfterCount():
            return state + rows.count
        case t.AfterDelay(delay=delay):
            return rows.clock + delay if state is None else state
        case t.Every(period=period):
            return _multiple_above(rows.clock, period) if state is None else state
        case t.EveryEventTime(period=period):
            return [_multiple_above(rows.base, period), not rows.passed] if state is None else state
        case t.AtWatermark():
            return [state[0], taken(_late(trigger) if state[0] else _early(trigger), state[1], rows)]
        case t.Repeatedly(trigger=inner):
            return taken(inner, state, rows)
        case t.AnyOf(triggers=inner):
            return [taken(one, its, rows) for one, its in zip(inner, state, strict=True)]
        case t.AllOf(triggers=inner):
            return [
                [its if done else taken(one, its, rows), done]
                for one, (its, done) in zip(inner, state, strict=True)
            ]
        case t.InOrder(triggers=inner):
            return [state[0], taken(inner[state[0]], state[1], rows)]
        case t.Until(trigger=main, last=last):
            return [taken(main, state[0], rows), taken(last, state[1], rows)]
        case _:
            return state


def ready(trigger: Trigger, state: State, moment: Moment) -> bool:
    """Whether the window fires now."""
    match trigger:
        case t.AfterCount(rows=wanted):
            return bool(state >= wanted)
        case t.AfterDelay() | t.Every():
            return state is not None and moment.clock >= state
        case t.EveryEventTime():
            at, ends = _event_times(state)
            return at is not None and (moment.watermark >= at or (ends and moment.passed))
        case t.AtWatermark():
            return (
                ready(_late(trigger), state[1], moment)
                if state[0]
                else moment.passed or ready(_early(trigger), state[1], moment)
            )
        case t.Repeatedly(trigger=inner):
            return ready(inner, state, moment)
        case t.AnyOf(triggers=inner):
            return any(ready(one, its, moment) for one, its in zip(inner, state, strict=True))
        case t.AllOf(triggers=inner):
            return all(done or ready(one, its, moment) for one, (its, done) in zip(inner, state, strict=True))
        case t.InOrder(triggers=inner):
            return ready(inner[state[0]], state[1], moment)
        case t.Until(trigger=main, last=last):
            return ready(main, state[0], moment) or ready(last, state[1], moment)
        case t.AtClock():
            return moment.elapsed
        case t.AtEnd():
            return moment.watermark >= END
        case _:
            return False


def fired(trigger: Trigger, state: State, moment: Moment) -> tuple[State, bool]:
    """The state after the window fired, and whether the trigger has finished; only for what is ready."""
    match trigger:
        case t.Every() | t.EveryEventTime():
            return None, False
        case t.AtWatermark():
            return _fired_at_watermark(trigger, state, moment)
        case t.Repeatedly(trigger=inner):
            after, finished = fired(inner, state, moment)
            return begin(inner) if finished else after, False
        case t.AnyOf(triggers=inner):
            pairs = [
                fired(one, its, moment) if ready(one, its, moment) else (its, False)
                for one, its in zip(inner, state, strict=True)
            ]
            return [its for its, _ in pairs], any(finished for _, finished in pairs)
        case t.AllOf(triggers=inner):
            both = [
                (its, True) if done else fired(one, its, moment)
                for one, (its, done) in zip(inner, state, strict=True)
            ]
            return [[its, done] for its, done in both], all(done for _, done in both)
        case t.InOrder(triggers=inner):
            after, finished = fired(inner[state[0]], state[1], moment)
            if not finished or state[0] + 1 == len(inner):
                return [state[0], after], finished
            return [state[0] + 1, begin(inner[state[0] + 1])], False
        case t.Until(trigger=main, last=last):
            if ready(last, state[1], moment):
                return state, True
            after, finished = fired(main, state[0], moment)
            return [after, state[1]], finished
        case _:
            return state, True


def merged(trigger: Trigger, states: Sequence[State], *, passed: bool) -> State:
    """The state of a window made of several, or of one that grew; `passed`: whether the watermark is past its end."""
    match trigger:
        case t.AfterCount():
            return sum(states)
        case t.AfterDelay() | t.Every():
            return min((state for state in states if state is not None), default=None)
        case t.EveryEventTime():
            times = [at for at, _ in map(_event_times, states) if at is not None]
            return [min(times), not passed] if times else None
        case t.AtWatermark():
            if passed and all(settled for settled, _ in states):
                return [True, merged(_late(trigger), [its for _, its in states], passed=passed)]
            sooner = [its for settled, its in states if not settled] or [begin(_early(trigger))]
            return [False, merged(_early(trigger), sooner, passed=passed)]
        case t.Repeatedly(trigger=inner):
            return merged(inner, states, passed=passed)
        case t.AnyOf(triggers=inner):
            return [merged(one, [state[i] for state in states], passed=passed) for i, one in enumerate(inner)]
        case t.AllOf(triggers=inner):
            return [
                _merged_of_all(one, [state[i] for state in states], passed=passed)
                for i, one in enumerate(inner)
            ]
        case t.InOrder(triggers=inner):
            furthest = max(which for which, _ in states)
            return [
                furthest,
                merged(inner[furthest], [its for which, its in states if which == furthest], passed=passed),
            ]
        case t.Until(trigger=main, last=last):
            return [
                merged(one, [state[i] for state in states], passed=passed)
                for i, one in enumerate((main, last))
            ]
        case _:
            return states[0]


def dues(trigger: Trigger, state: State) -> Iterator[Due]:
    """Every time for which the trigger waits, though no row should come."""
    match trigger:
        case t.AfterDelay() | t.Every() if state is not None:
            yield Due(state, clock=True)
        case t.EveryEventTime() if state is not None:
            at, ends = _event_times(state)
            yield Due(at, clock=False)
            if ends:
                yield Due(None, clock=False)
        case t.AtWatermark():
            if not state[0]:
                yield Due(None, clock=False)
            yield from dues(_late(trigger) if state[0] else _early(trigger), state[1])
        case t.AtClock():
            yield Due(None, clock=True)
        case t.AtEnd():
            yield Due(END, clock=False)
        case _:
            for one, its in _parts(trigger, state):
                yield from dues(one, its)


def _parts(trigger: Trigger, state: State) -> Iterator[tuple[Trigger, State]]:
    """The triggers inside that still count, with their states."""
    match trigger:
        case t.Repeatedly(trigger=inner):
            yield inner, state
        case t.AnyOf() | t.Until():
            yield from zip(trigger.inner, state, strict=True)
        case t.AllOf(triggers=inner):
            yield from ((one, its) for one, (its, done) in zip(inner, state, strict=True) if not done)
        case t.InOrder(triggers=inner):
            yield inner[state[0]], state[1]


def _early(trigger: t.AtWatermark) -> Trigger:
    return _NEVER if trigger.early is None else t.Repeatedly(trigger.early)


def _late(trigger: t.AtWatermark) -> Trigger:
    return _EACH_BATCH if trigger.late is None else t.Repeatedly(trigger.late)


def _fired_at_watermark(trigger: t.AtWatermark, state: State, moment: Moment) -> tuple[State, bool]:
    if not state[0] and moment.passed:
        return [True, begin(_late(trigger))], trigger.once
    after, _ = fired(_late(trigger) if state[0] else _early(trigger), state[1], moment)
    return [state[0], after], False


def _merged_of_all(trigger: Trigger, states: Sequence[State], *, passed: bool) -> State:
    going = [its for its, done in states if not done]
    return [merged(trigger, going, passed=passed), False] if going else states[0]


def _event_times(state: State) -> tuple[int | None, bool]:
    """What `every_event_time` waits for; a number alone was stored by versions that did not wait for the window's end."""
    return (
        (None, False) if state is None else (state, False) if isinstance(state, int) else (state[0], state[1])
    )


def _multiple_above(at: int, period: int) -> int:
    return (at // period + 1) * period
