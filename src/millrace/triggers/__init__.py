"""WHEN panes fire.

A trigger is evaluated once per batch and window, after the rows of the batch are added and the watermark has
advanced. Some triggers finish when they fire. A window whose trigger has finished is closed: later rows for
it are refused. Triggers compose without limit. Those of a user's own
are in `own.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.timestamps import TimeDomain
from millrace.values.calls import explain_errors, explain_errors_of, require_choice
from millrace.values.missing_names import missing_name

__all__ = [
    "CONTINUE",
    "FINISH",
    "FIRE",
    "Trigger",
    "TriggerContext",
    "TriggerFn",
    "TriggerResult",
    "after_count",
    "after_delay",
    "all_of",
    "any_of",
    "at_end",
    "at_watermark",
    "at_window_end",
    "every",
    "in_order",
    "never",
    "repeatedly",
]


@explain_errors
class Trigger:
    """Decides when a window emits a pane. Subclasses are frozen and compare by value."""

    def until(self, other: Trigger) -> Until:
        """Fires as this trigger does. When `other` fires, it fires a last time and finishes."""
        return Until(self, _check_trigger(other, "until"))

    @property
    def inner(self) -> tuple[Trigger, ...]:
        """The triggers it is composed of."""
        return ()

    @property
    def finishes(self) -> bool:
        """Whether it can finish before its window ends."""
        return False

    @property
    def waits_for_clock(self) -> bool:
        """Whether it may fire by the passing of processing time alone."""
        return any(inner.waits_for_clock for inner in self.inner)

    def __str__(self) -> str:
        """As users write it."""
        values = (getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]  # those below are dataclasses
        return f"{_FUNCTION_NAMES[type(self)]}({', '.join(_format_value(value) for value in values)})"


@dataclass(frozen=True)
class Never(Trigger):
    """Does not fire."""


@dataclass(frozen=True)
class AtWatermark(Trigger):
    """Fires when the watermark passes the end of the window; before by `early`,
    after by `late`, see `at_watermark`.
    """

    early: Trigger | None = None
    late: Trigger | None = None

    @property
    def has_single_pane(self) -> bool:
        """Whether the pane after the end of a window is its last, so that later rows are refused."""
        return isinstance(self.late, Never)

    @property
    def inner(self) -> tuple[Trigger, ...]:
        """The triggers of early and late panes."""
        return tuple(trigger for trigger in (self.early, self.late) if trigger is not None)

    @property
    def finishes(self) -> bool:
        """Whether there are no panes after the one on time."""
        return self.has_single_pane

    def __str__(self) -> str:
        """As users write it."""
        arguments = [
            f"{name}={value}"
            for name, value in (("early", self.early), ("late", self.late))
            if value is not None
        ]
        return f"at_watermark({', '.join(arguments)})"


@dataclass(frozen=True)
class AfterCount(Trigger):
    """Fires once, after `rows` rows."""

    rows: int
    finishes = True


@dataclass(frozen=True)
class AfterDelay(Trigger):
    """Fires once, `delay` of processing time after the first row."""

    delay: int
    finishes = True
    waits_for_clock = True

    def __str__(self) -> str:
        """As users write it."""
        return f"after_delay({durations.format_millis(self.delay)!r})"


@dataclass(frozen=True)
class Every(Trigger):
    """Fires when the clock passes a multiple of `period` and there are new rows."""

    period: int
    waits_for_clock = True

    def __str__(self) -> str:
        """As users write it."""
        return f"every({durations.format_millis(self.period)!r})"


@dataclass(frozen=True)
class EveryEventTime(Trigger):
    """Fires when the watermark passes a multiple of `period` or the end of the
    window, and there are new rows.
    """

    period: int

    def __str__(self) -> str:
        """As users write it."""
        return f"every({durations.format_millis(self.period)!r}, time='event')"


@dataclass(frozen=True)
class Repeatedly(Trigger):
    """Starts the inner trigger again whenever it has finished."""

    trigger: Trigger

    @property
    def inner(self) -> tuple[Trigger, ...]:
        """The repeated trigger."""
        return (self.trigger,)


@dataclass(frozen=True)
class _CompositeTrigger(Trigger):
    """Composed of any number of triggers."""

    triggers: tuple[Trigger, ...]

    @property
    def inner(self) -> tuple[Trigger, ...]:
        """The composed triggers."""
        return self.triggers

    @property
    def finishes(self) -> bool:
        """Whether all of them finish."""
        return all(trigger.finishes for trigger in self.triggers)


@dataclass(frozen=True)
class AnyOf(_CompositeTrigger):
    """Fires when one of them fires, and finishes when one of them does."""

    @property
    def finishes(self) -> bool:
        """Whether one of them finishes."""
        return any(trigger.finishes for trigger in self.triggers)


@dataclass(frozen=True)
class AllOf(_CompositeTrigger):
    """Fires when all of them are ready to fire, and finishes when all of them have."""


@dataclass(frozen=True)
class InOrder(_CompositeTrigger):
    """Fires as the first until that has finished, then as the second, and so on; finishes with the last."""


@dataclass(frozen=True)
class Until(Trigger):
    """Fires as `trigger`, and a last time when `last` fires."""

    trigger: Trigger
    last: Trigger

    @property
    def inner(self) -> tuple[Trigger, ...]:
        """The trigger, and the one that ends it."""
        return self.trigger, self.last

    @property
    def finishes(self) -> bool:
        """Always: it finishes when `last` fires."""
        return True

    def __str__(self) -> str:
        """As users write it."""
        return f"{self.trigger}.until({self.last})"


@dataclass(frozen=True)
class AtWindowEnd(Trigger):
    """Fires once, when the clock passes the end of the window."""

    finishes = True
    waits_for_clock = True


@dataclass(frozen=True)
class AtEnd(Trigger):
    """Fires once, at the end of the stream."""

    finishes = True


def never() -> Never:
    """A trigger that does not fire; `at_watermark(late=never())` gives one pane per window."""
    return Never()


def at_watermark(*, early: Trigger | None = None, late: Trigger | None = None) -> AtWatermark:
    """Fires when the watermark passes the end of the window (on time), before that by `early`, after it by
    `late`.

    `early` and `late` start again when they have finished. Without `late`, each batch with late rows fires.
    With `late=never()` a window has one pane and refuses later rows; a window whose first row is late, within
    the allowed lateness, has one pane, too.
    """
    early_trigger = None if early is None or isinstance(early, Never) else _check_trigger(early, "early")
    return AtWatermark(early_trigger, None if late is None else _check_trigger(late, "late"))


@overload
def every(period: Duration, *, time: Literal["processing"] = "processing") -> Every: ...
@overload
def every(period: Duration, *, time: Literal["event"]) -> EveryEventTime: ...
def every(period: Duration, *, time: TimeDomain = "processing") -> Every | EveryEventTime:
    """Fires when the clock passes a multiple of `period` and there are new rows.

    With `time="event"` the watermark decides instead, and the trigger also fires at the window's end.
    """
    period_ms = durations.parse_positive(period, name="period")
    require_choice("time", time, get_args(TimeDomain))
    return Every(period_ms) if time == "processing" else EveryEventTime(period_ms)


def after_delay(delay: Duration) -> AfterDelay:
    """Fires once, `delay` of processing time after the first new row."""
    return AfterDelay(durations.parse_non_negative(delay, name="delay"))


def after_count(n: int) -> AfterCount:
    """Fires once, after `n` rows since it started."""
    return AfterCount(durations.check_whole(n, name="n", minimum=1))


def repeatedly(trigger: Trigger) -> Repeatedly:
    """Starts `trigger` again whenever it has finished; never finishes itself."""
    return Repeatedly(_check_trigger(trigger, "trigger"))


def any_of(*triggers: Trigger) -> AnyOf:
    """Fires when any of the triggers fires."""
    return AnyOf(_check_triggers(triggers, "any_of"))


def all_of(*triggers: Trigger) -> AllOf:
    """Fires when all of the triggers are ready to fire."""
    return AllOf(_check_triggers(triggers, "all_of"))


def in_order(*triggers: Trigger) -> InOrder:
    """Fires as one trigger after the other, each until it has finished."""
    return InOrder(_check_triggers(triggers, "in_order"))


def at_window_end() -> AtWindowEnd:
    """Fires once, when the clock passes the end of the window."""
    return AtWindowEnd()


def at_end() -> AtEnd:
    """Fires once, at the end of the stream."""
    return AtEnd()


if not TYPE_CHECKING:  # a type checker would take every name that is missing for Any

    def __getattr__(name: str) -> Any:
        raise missing_name("millrace.triggers", name, __dir__())


def __dir__() -> list[str]:
    """Only the public names, for completion."""
    return __all__


def walk(trigger: Trigger) -> Iterator[Trigger]:
    """The trigger and all that it is composed of, recursively."""
    yield trigger
    for inner in trigger.inner:
        yield from walk(inner)


def has_own_trigger(trigger: Trigger) -> bool:
    """Whether one of a user's own is part of it, whose code is called for each row."""
    return any(isinstance(inner, TriggerFn) for inner in walk(trigger))


def check_trigger(trigger: Any, name: str) -> Trigger:
    """The trigger; refuses unknown types of triggers in it, which would never fire."""
    if isinstance(trigger, type) and issubclass(trigger, Trigger):
        raise DefinitionError(
            f"{name}={trigger.__name__} is a class; use one of millrace.triggers, such as "
            "triggers.after_count(100)"
        )
    if not isinstance(trigger, Trigger):
        raise DefinitionError(
            f"{name}={trigger!r} is not a trigger; use one of millrace.triggers, such as "
            "triggers.after_count(100)"
        )
    for inner in walk(trigger):
        if isinstance(inner, TriggerFn):
            check_trigger_fn(inner)
        elif type(inner) not in _TRIGGER_TYPES:
            raise DefinitionError(
                f"{name}: {type(inner).__name__} is a trigger of your own, which would never fire; make it a "
                "subclass of triggers.TriggerFn, whose methods are called for rows and timers"
            )
    return trigger


_check_trigger = check_trigger


def _check_triggers(triggers: tuple[Trigger, ...], name: str) -> tuple[Trigger, ...]:
    if not triggers:
        raise DefinitionError(f"{name}() needs at least one trigger, or it would never fire")
    return tuple(_check_trigger(trigger, name) for trigger in triggers)


def _format_value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


_TRIGGER_TYPES = {
    *(Never, AtWatermark, AfterCount, AfterDelay, Every, EveryEventTime, Repeatedly),
    *(AnyOf, AllOf, InOrder, Until, AtWindowEnd, AtEnd),
}
_FUNCTION_NAMES = {
    Never: "never",
    AfterCount: "after_count",
    Repeatedly: "repeatedly",
    AnyOf: "any_of",
    AllOf: "all_of",
    InOrder: "in_order",
    AtWindowEnd: "at_window_end",
    AtEnd: "at_end",
}

from millrace.triggers.own import (  # noqa: E402 - its classes are made of the one above
    CONTINUE,
    FINISH,
    FIRE,
    TriggerContext,
    TriggerFn,
    TriggerResult,
    check_trigger_fn,
)

explain_errors_of(
    globals(),
    "after_count",
    "after_delay",
    "all_of",
    "any_of",
    "at_window_end",
    "at_end",
    "at_watermark",
    "every",
    "in_order",
    "never",
    "repeatedly",
)
