"""Triggers of a user's own as state machines, between text that is stored and calls of the user's code.

The state of one in a window is `[what it keeps, timers, timers of the clock, what it answered]`. What it
keeps is bytes, in the form in which state of processors is stored, as text; null for nothing. So a state that
was stored, moved to another slot and read again goes on as if nothing had been.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from millrace.engine.operators import process_state
from millrace.state import KeyState
from millrace.triggers import CONTINUE, TriggerFn, TriggerResult
from millrace.triggers.own import (
    OwnTriggerState,
    add_elements,
    call_timers,
    merge_parts,
    note_fired,
    start_own,
)

if TYPE_CHECKING:
    from millrace.engine.trigger_state import FiringContext, NewRows


def start(trigger: TriggerFn, moment: NewRows | FiringContext | None) -> Any:
    """The state before the first row. `moment`: the rows that are about to be added, or when another trigger
    fires, which starts this one.
    """
    if moment is None:
        return _dump(OwnTriggerState())
    times = (moment.known_watermark, moment.clock)
    return _dump(start_own(trigger, moment.window, times, time_passes=moment.time_passes))


def add_rows(trigger: TriggerFn, state: Any, rows: NewRows) -> Any:
    """The state after rows came."""
    kept = _load(state)
    add_elements(trigger, kept, rows.rows, rows.window, (rows.known_watermark, rows.clock))
    return _dump(kept)


def merge(trigger: TriggerFn, states: Sequence[Any], rows: NewRows) -> Any:
    """The state of a window that others have become, before rows are added to it."""
    parts = [_load(state) for state in states]
    return _dump(merge_parts(trigger, parts, rows.window, (rows.known_watermark, rows.clock)))


def pass_time(trigger: TriggerFn, state: Any, context: FiringContext) -> Any:
    """The state once the timers that are due were called."""
    if not any(at <= context.watermark for at in state[1]) and not any(
        at <= context.clock for at in state[2]
    ):
        return state
    kept = _load(state)
    call_timers(trigger, kept, context.window, (context.known_watermark, context.clock))
    return _dump(kept)


def is_ready(state: Any) -> bool:
    """Whether it has asked for a pane."""
    return bool(state[3] != CONTINUE.value)


def fire(trigger: TriggerFn, state: Any, context: FiringContext) -> tuple[Any, bool]:
    """The state after the window fired, and whether the trigger has finished."""
    kept = _load(state)
    finished = note_fired(trigger, kept, context.window, (context.known_watermark, context.clock))
    return _dump(kept), finished


def timers(state: Any) -> Iterable[tuple[int, bool]]:
    """Times for which it waits, and whether they are the clock's."""
    yield from ((at, False) for at in state[1])
    yield from ((at, True) for at in state[2])


def _load(state: Any) -> OwnTriggerState:
    data, event_timers, clock_timers, result = state
    values = process_state.load(b64decode(data)).values if data else {}
    return OwnTriggerState(values, {*event_timers}, {*clock_timers}, TriggerResult(result))


def _dump(kept: OwnTriggerState) -> Any:
    data = b64encode(process_state.dump(KeyState(kept.values))).decode() if kept.values else None
    return [data, sorted(kept.timers), sorted(kept.clock_timers), kept.result.value]
