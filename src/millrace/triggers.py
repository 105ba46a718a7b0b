"""WHEN panes fire.

A trigger looks at a window once per batch, after all its rows were taken and the watermark moved. It fires or does not; some finish by
firing, and a window whose trigger has finished is closed: later rows for it are refused. Triggers compose without limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, overload

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.timestamps import TimeDomain
from millrace.values.calls import explain_errors, explain_errors_of, require_choice

__all__ = [
    "Trigger",
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
    """Decides when a window's result is shown. Subclasses are frozen and compare by value."""

    def until(self, other: Trigger) -> Until:
        """Fires as this one does; when `other` fires, it fires a last time and finishes."""
        return Until(self, _check_trigger(other, "until"))

    @property
    def inner(self) -> tuple[Trigger, ...]:
        """The triggers it is made of."""
        return ()

    @property
    def finishes(self) -> bool:
        """Whether it can come to an end before its window does."""
        return False

    @property
    def waits_for_clock(self) -> bool:
        """Whether it may fire because time passes and nothing else happens."""
        return any(inner.waits_for_clock for inner in self.inner)

    def __str__(self) -> str:
        """As a user would write it."""
        values = (getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]  # every subclass is a dataclass
        return f"{_FUNCTION_NAMES[type(self)]}({', '.join(_format_value(value) for value in values)})"


@dataclass(frozen=True)
class Never(Trigger):
    """Fires at no time."""


@dataclass(frozen=True)
class AtWatermark(Trigger):
    """On time when the watermark passes the window's end; then by `late` (None: once per batch that brings late rows)."""

    early: Trigger | None = None
    late: Trigger | None = None

    @property
    def has_single_pane(self) -> bool:
        """Whether a window's pane after its end is the last one, so that later rows are refused."""
        return isinstance(self.late, Never)

    @property
    def inner(self) -> tuple[Trigger, ...]:
        """Those for early and late panes."""
        return tuple(trigger for trigger in (self.early, self.late) if trigger is not None)

    @property
    def finishes(self) -> bool:
        """Whether there are no late panes."""
        return self.has_single_pane

    def __str__(self) -> str:
        """As a user would write it."""
        arguments = [
            f"{name}={value}"
            for name, value in (("early", self.early), ("late", self.late))
            if value is not None
        ]
        return f"at_watermark({', '.join(arguments)})"


@dataclass(frozen=True)
class AfterCount(Trigger):
    """Once, when so many rows have come."""

    rows: int
    finishes = True


@dataclass(frozen=True)
class AfterDelay(Trigger):
    """Once, when so much processing time has passed since the first row."""

    delay: int
    finishes = True
    waits_for_clock = True

    def __str__(self) -> str:
        """As a user would write it."""
        return f"after_delay({durations.format_millis(self.delay)!r})"


@dataclass(frozen=True)
class Every(Trigger):
    """Whenever the clock passes a multiple of `period` and something is new."""

    period: int
    waits_for_clock = True

    def __str__(self) -> str:
        """As a user would write it."""
        return f"every({durations.format_millis(self.period)!r})"


@dataclass(frozen=True)
class EveryEventTime(Trigger):
    """Whenever the watermark passes a multiple of `period` or the window's end, and something is new."""

    period: int

    def __str__(self) -> str:
        """As a user would write it."""
        return f"every({durations.format_millis(self.period)!r}, time='event')"


@dataclass(frozen=True)
class Repeatedly(Trigger):
    """Again from the start, whenever the trigger inside has finished."""

    trigger: Trigger

    @property
    def inner(self) -> tuple[Trigger, ...]:
        """The one that is repeated."""
        return (self.trigger,)


@dataclass(frozen=True)
class _CompositeTrigger(Trigger):
    """Made of triggers, each of which has its turn."""

    triggers: tuple[Trigger, ...]

    @property
    def inner(self) -> tuple[Trigger, ...]:
        """All of them."""
        return self.triggers

    @property
    def finishes(self) -> bool:
        """Whether all do."""
        return all(trigger.finishes for trigger in self.triggers)


@dataclass(frozen=True)
class AnyOf(_CompositeTrigger):
    """When one of them fires; finished when one of them is."""

    @property
    def finishes(self) -> bool:
        """Whether one does."""
        return any(trigger.finishes for trigger in self.triggers)


@dataclass(frozen=True)
class AllOf(_CompositeTrigger):
    """When all of them are ready to fire; finished when all of them are."""


@dataclass(frozen=True)
class InOrder(_CompositeTrigger):
    """The first until it has finished, then the second, and so on; finished with the last."""


@dataclass(frozen=True)
class Until(Trigger):
    """As `trigger`, and a last time when `last` fires."""

    trigger: Trigger
    last: Trigger

    @property
    def inner(self) -> tuple[Trigger, ...]:
        """Both."""
        return self.trigger, self.last

    @property
    def finishes(self) -> bool:
        """When the last one fires."""
        return True

    def __str__(self) -> str:
        """As a user would write it."""
        return f"{self.trigger}.until({self.last})"


@dataclass(frozen=True)
class AtWindowEnd(Trigger):
    """Once, when the clock passes the window's end."""

    finishes = True
    waits_for_clock = True


@dataclass(frozen=True)
class AtEnd(Trigger):
    """Once, at the end of the stream."""

    finishes = True


def never() -> Never:
    """A trigger that does not fire; `at_watermark(late=never())` gives one pane per window."""
    return Never()


def at_watermark(*, early: Trigger | None = None, late: Trigger | None = None) -> AtWatermark:
    """On time when the watermark passes the window's end; before by `early`, after by `late`, which repeat by themselves.

    Without `late`, once per batch that brings late rows. With `late=never()` a window is shown once: rows that come after that are refused,
    but a window whose first row is late, and within the lateness, is shown too.
    """
    early_trigger = None if early is None or isinstance(early, Never) else _check_trigger(early, "early")
    return AtWatermark(early_trigger, None if late is None else _check_trigger(late, "late"))


@overload
def every(period: Duration, *, time: Literal["processing"] = "processing") -> Every: ...
@overload
def every(period: Duration, *, time: Literal["event"]) -> EveryEventTime: ...
def every(period: Duration, *, time: TimeDomain = "processing") -> Every | EveryEventTime:
    """Whenever the clock passes a multiple of `period` and something is new.

    With `time="event"` the watermark decides instead, and the trigger also fires at the window's end.
    """
    period_ms = durations.parse_positive(period, name="period")
    require_choice("time", time, get_args(TimeDomain))
    return Every(period_ms) if time == "processing" else EveryEventTime(period_ms)


def after_delay(delay: Duration) -> AfterDelay:
    """Once, `delay` of processing time after the first row that is new."""
    return AfterDelay(durations.parse_non_negative(delay, name="delay"))


def after_count(n: int) -> AfterCount:
    """Once, when `n` rows have come since it began."""
    return AfterCount(durations.check_whole(n, name="n", minimum=1))


def repeatedly(trigger: Trigger) -> Repeatedly:
    """`trigger` again and again; it never finishes."""
    return Repeatedly(_check_trigger(trigger, "trigger"))


def any_of(*triggers: Trigger) -> AnyOf:
    """When any of them fires."""
    return AnyOf(_check_triggers(triggers, "any_of"))


def all_of(*triggers: Trigger) -> AllOf:
    """When all of them are ready."""
    return AllOf(_check_triggers(triggers, "all_of"))


def in_order(*triggers: Trigger) -> InOrder:
    """One after the other, each until it has finished."""
    return InOrder(_check_triggers(triggers, "in_order"))


def at_window_end() -> AtWindowEnd:
    """Once, when the clock passes the window's end: the end of a window by processing time."""
    return AtWindowEnd()


def at_end() -> AtEnd:
    """Once, when nothing more will come."""
    return AtEnd()


def __dir__() -> list[str]:
    """What completion shows: the vocabulary, without what the module imports."""
    return __all__


def walk(trigger: Trigger) -> Iterator[Trigger]:
    """The trigger and all it is made of."""
    yield trigger
    for inner in trigger.inner:
        yield from walk(inner)


def check_trigger(trigger: Any, name: str) -> Trigger:
    """A trigger that is known, with all that it is made of; refuses others, which would never fire."""
    if isinstance(trigger, type) and issubclass(trigger, Trigger):
        raise DefinitionError(
            f"{name}={trigger.__name__} is a class; use one of millrace.triggers, such as triggers.after_count(100)"
        )
    if not isinstance(trigger, Trigger):
        raise DefinitionError(
            f"{name}={trigger!r} is not a trigger; use one of millrace.triggers, such as triggers.after_count(100)"
        )
    for inner in walk(trigger):
        if type(inner) not in _TRIGGER_TYPES:
            raise DefinitionError(
                f"{name}: {type(inner).__name__} is a trigger of your own, which would never fire; "
                "combine those of millrace.triggers, such as triggers.any_of(triggers.after_count(100), triggers.every('1s'))"
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
