"""Triggers of a user's own: a class in plain Python, called for each row and timer of a window.

A subclass of `TriggerFn` decides from the rows themselves, or from timers, when its window shows a pane.
What it keeps is declared as `millrace.state`, and is that of one key and window:

    class AtRise(triggers.TriggerFn):
        highest = state.value(0)

        def on_element(self, row, ctx):
            if row["price"] <= self.highest:
                return triggers.CONTINUE
            self.highest = row["price"]
            return triggers.FIRE

A trigger only asks for a pane. The window shows it at the end of the batch, after all rows have come and time
has moved, at most one a batch. So what is kept must be reset in `on_fire`, when the pane has been shown, and
not where FIRE is returned: between the two more rows may come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, get_args

from millrace import timestamps
from millrace.errors import DefinitionError
from millrace.state import ListState, MapState, State, ValueState, find_states
from millrace.timestamps import TimeDomain
from millrace.triggers import Trigger
from millrace.values.calls import require_choice
from millrace.values.storable import copy_storable
from millrace.windows import Window


class TriggerResult(Enum):
    """What a trigger of a user's own answers."""

    CONTINUE = "continue"
    """Nothing is to be shown because of this call; an earlier FIRE or FINISH stands."""
    FIRE = "fire"
    """The window shows a pane at the end of the batch."""
    FINISH = "finish"
    """The same, and the trigger has finished: if nothing starts it again, the window is closed."""


CONTINUE, FIRE, FINISH = TriggerResult


@dataclass
class OwnTriggerState:
    """What is kept of a trigger in one key and window."""

    values: dict[str, Any] = field(default_factory=dict)
    """State by name, in the form of `millrace.state`."""
    timers: set[int] = field(default_factory=set)
    clock_timers: set[int] = field(default_factory=set)
    result: TriggerResult = CONTINUE
    """What has been answered since the last pane."""


class TriggerContext:
    """One call of a trigger: for which window and when, and the timers it may set."""

    time = 0
    """State of a window has no time to live: it goes with the window."""

    def __init__(
        self,
        trigger: TriggerFn,
        kept: OwnTriggerState,
        window: Window,
        times: tuple[int | None, int],
        *,
        time_passes: bool,
    ) -> None:
        """`times`: the watermark and the clock. `time_passes`: they were reached in this batch, so that
        timers up to them would be too late.
        """
        self.window = window
        """The window `[start, end)`, in milliseconds."""
        self.watermark, self.now = times
        """How far event time has come, None before any row: where rows come before the batch, else after it;
        and the processing time of the batch. In windows in processing time both are the clock.
        """
        self.handed_out: dict[str, tuple[ValueState[Any], Any, Any]] = {}
        """As in the context of a processor."""
        self._trigger, self._kept, self._time_passes = trigger, kept, time_passes

    def set_timer(self, at: int | datetime, *, time: TimeDomain = "event") -> None:
        """Calls `on_event_time` when the watermark reaches `at`; with `time="processing"`,
        `on_processing_time` when the clock does.

        A time that has passed already means the end of this batch; set while time passes, the next
        millisecond. There is one timer for each time.
        """
        timers = self._timers(time)
        method = "on_event_time" if time == "event" else "on_processing_time"
        if not _overrides(self._trigger, method):
            raise DefinitionError(
                f"{type(self._trigger).__name__} sets a timer in {time} time, but has no "
                f"{method}(self, time, ctx)"
            )
        reached = self.watermark if time == "event" else self.now
        millis = self._to_millis(at)
        timers.add(max(millis, reached + 1) if self._time_passes and reached is not None else millis)

    def cancel_timer(self, at: int | datetime, *, time: TimeDomain = "event") -> None:
        """The timer for this time does not fire if it was set."""
        self._timers(time).discard(self._to_millis(at))

    def stored(self, *, shared: bool, write: bool) -> dict[str, Any]:  # noqa: ARG002 - all of it is the window's
        """Stored values by name."""
        return self._kept.values

    def can_write(self, *, shared: bool) -> bool:  # noqa: ARG002 - likewise
        """Always."""
        return True

    def _timers(self, time: TimeDomain) -> set[int]:
        require_choice("time", time, get_args(TimeDomain))
        return self._kept.timers if time == "event" else self._kept.clock_timers

    def _to_millis(self, at: int | datetime) -> int:
        """Any time that an event can have, or the end of the window."""
        try:
            millis = timestamps.value_to_millis(at)
        except (ValueError, OverflowError) as error:
            raise DefinitionError(f"a timer for {at!r}: that is not a time: {error}") from error
        if millis != self.window[1] and not timestamps.is_in_range(millis):
            raise DefinitionError(f"a timer for {at!r}: that is outside the years 1 to 9999")
        return millis


class TriggerFn(Trigger, ABC):
    """Subclass it for a trigger of your own, with `on_element`, and with those other methods that it needs.

    It composes with all other triggers. An object serves all keys and windows: nothing but `millrace.state`
    is kept between calls.
    """

    finishes = True
    context: TriggerContext | None = None

    def on_start(self, ctx: TriggerContext) -> None:
        """It begins: before the first row of a window, or when another trigger of which it is a part starts
        it, such as `repeatedly` after it has finished.
        """

    @abstractmethod
    def on_element(self, row: dict[str, Any], ctx: TriggerContext) -> TriggerResult:
        """One row of the window. Rows of a batch come in order of event time, topic, partition, offset."""

    def on_event_time(self, time: int, ctx: TriggerContext) -> TriggerResult:
        """The watermark has reached a timer."""
        raise NotImplementedError

    def on_processing_time(self, time: int, ctx: TriggerContext) -> TriggerResult:
        """The clock has reached a timer."""
        raise NotImplementedError

    def on_merge(self, parts: Sequence[Mapping[str, Any]], ctx: TriggerContext) -> TriggerResult:
        """Rows have come to a window that can merge, before `on_element` is called for them.

        `parts` are the values kept by each of the windows that have become this one (often only one), by
        name, in any order. State begins empty, and timers and answers of the parts are gone: keep and set
        here what holds for the merged window.
        """
        raise NotImplementedError

    def on_fire(self, ctx: TriggerContext) -> None:
        """The window has fired because this trigger asked for it, and goes on."""

    def settings(self) -> Mapping[str, Any]:
        """What the trigger was made with. State fits a trigger of the same class name, settings and state.
        Override it to leave out what changes no state.
        """
        return {name: value for name, value in sorted(vars(self).items()) if name != "context"}

    @property
    def waits_for_clock(self) -> bool:
        """Whether it has a use for timers of the clock."""
        return _overrides(self, "on_processing_time")

    @property
    def merges(self) -> bool:
        """Whether it can be used with windows that merge."""
        return _overrides(self, "on_merge")

    def __eq__(self, other: object) -> bool:
        """By class and settings."""
        return type(self) is type(other) and self.settings() == other.settings()

    def __hash__(self) -> int:
        """By class alone, as settings may be of any kind."""
        return hash(type(self))

    def __str__(self) -> str:
        """As users write it."""
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.settings().items())})"

    __repr__ = __str__


def start_own(
    trigger: TriggerFn, window: Window, times: tuple[int | None, int], *, time_passes: bool
) -> OwnTriggerState:
    """A trigger that begins."""
    kept = OwnTriggerState()
    if _overrides(trigger, "on_start"):
        ctx = TriggerContext(trigger, kept, window, times, time_passes=time_passes)
        _call(trigger, kept, ctx, lambda: trigger.on_start(ctx), answers=False)
    return kept


def add_elements(
    trigger: TriggerFn,
    kept: OwnTriggerState,
    rows: Iterable[dict[str, Any]],
    window: Window,
    times: tuple[int | None, int],
) -> None:
    """The rows of a batch, one after the other."""
    ctx = TriggerContext(trigger, kept, window, times, time_passes=False)
    for row in rows:
        _call(trigger, kept, ctx, lambda row=row: trigger.on_element(row, ctx))  # type: ignore[misc] # mypy sees no default


def merge_parts(
    trigger: TriggerFn,
    parts: Sequence[OwnTriggerState],
    window: Window,
    times: tuple[int | None, int],
) -> OwnTriggerState:
    """What is kept of a window that others, or its former self, have become."""
    merged = OwnTriggerState()
    ctx = TriggerContext(trigger, merged, window, times, time_passes=False)
    values = [_read_values(trigger, part) for part in parts]
    _call(trigger, merged, ctx, lambda: trigger.on_merge(values, ctx))
    return merged


def call_timers(
    trigger: TriggerFn, kept: OwnTriggerState, window: Window, times: tuple[int | None, int]
) -> None:
    """Calls the timers that are due, first those of the watermark, each kind by time. A timer that they set
    waits for time to move on.
    """
    watermark, now = times
    ctx = TriggerContext(trigger, kept, window, times, time_passes=True)
    for at in sorted(due for due in kept.timers if watermark is not None and due <= watermark):
        if at in kept.timers:
            kept.timers.discard(at)
            _call(trigger, kept, ctx, lambda at=at: trigger.on_event_time(at, ctx))  # type: ignore[misc] # likewise
    for at in sorted(due for due in kept.clock_timers if due <= now):
        if at in kept.clock_timers:
            kept.clock_timers.discard(at)
            _call(trigger, kept, ctx, lambda at=at: trigger.on_processing_time(at, ctx))  # type: ignore[misc] # likewise


def note_fired(
    trigger: TriggerFn, kept: OwnTriggerState, window: Window, times: tuple[int | None, int]
) -> bool:
    """The window has fired as this trigger asked; whether the trigger has finished."""
    if kept.result is FINISH:
        return True
    kept.result = CONTINUE
    ctx = TriggerContext(trigger, kept, window, times, time_passes=True)
    _call(trigger, kept, ctx, lambda: trigger.on_fire(ctx), answers=False)
    return False


def _call(
    trigger: TriggerFn,
    kept: OwnTriggerState,
    ctx: TriggerContext,
    call: Callable[[], object],
    *,
    answers: bool = True,
) -> None:
    """A call of the user's code, during which its state is that of `ctx`. Of its answers the strongest stands
    until the window fires.
    """
    object.__setattr__(trigger, "context", ctx)
    try:
        result = call()
        for declared, copy, original in list(ctx.handed_out.values()):
            if copy != original:
                declared.write(ctx, copy)
    finally:
        object.__delattr__(trigger, "context")
        ctx.handed_out.clear()
    if not answers:
        return
    if not isinstance(result, TriggerResult):
        raise DefinitionError(
            f"{type(trigger).__name__} answered {result!r}; return triggers.CONTINUE, triggers.FIRE or "
            "triggers.FINISH"
        )
    kept.result = max(kept.result, result, key=_STRENGTH.index)


def _read_values(trigger: TriggerFn, kept: OwnTriggerState) -> dict[str, Any]:
    """The values kept, or where there are none the defaults, by name."""
    return {
        name: _read_value(declared, kept.values.get(name))
        for name, declared in find_states(type(trigger)).items()
    }


def _read_value(declared: State, stored: Any) -> Any:
    if isinstance(declared, ListState):
        return [copy_storable(item) for item, _ in stored or []]
    if isinstance(declared, MapState):
        return {key: copy_storable(item) for key, (item, _) in (stored or {}).items()}
    assert isinstance(declared, ValueState)
    return copy_storable(declared.default if stored is None else stored[0])


def check_trigger_fn(trigger: TriggerFn) -> None:
    """Refuses state that a window does not have."""
    for name, declared in find_states(type(trigger)).items():
        if declared.shared or declared.ttl is not None:
            raise DefinitionError(
                f"{type(trigger).__name__}.{name}: state of a trigger belongs to one window and goes "
                "with it; declare it without shared= and ttl="
            )


def _overrides(trigger: TriggerFn, method: str) -> bool:
    return getattr(type(trigger), method) is not getattr(TriggerFn, method)


_STRENGTH = list(TriggerResult)
