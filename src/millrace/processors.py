"""State and timers per key, a record at a time: what a user writes who needs more than windows and patterns.

    class Quiet(mr.Processor):
        outputs = {"clicks": pl.Int64}
        clicks = state.value(0, ttl="1h")

        def process(self, row, ctx):
            self.clicks += 1
            ctx.set_timer("quiet", row["event_time"] + 30_000)

        def on_timer(self, ctx, name):
            ctx.emit(clicks=self.clicks)
            del self.clicks

    mr.read(CLICKS).group_by("user").process(Quiet())

Rows come in order of event time, as the watermark releases them; those behind it are refused. A timer at T
fires once, after all rows before T and before all others. Nothing but `millrace.state` is kept between calls:
an object is made once for all keys, and anew after every restart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, ClassVar, TypeAlias, get_args

import polars as pl

from millrace import timestamps
from millrace.errors import DefinitionError
from millrace.state import KeyState, ValueState, find_states
from millrace.timestamps import TimeDomain
from millrace.values.calls import require_choice
from millrace.values.expressions import DType
from millrace.values.storable import copy_storable
from millrace.values.user_code import add_values

__all__ = ["Context", "Processor"]

Columns: TypeAlias = Mapping[str, DType]
MAIN = "out"
"""The output that `emit` writes to by default, under the name that the graph has for it."""


class Context:
    """One call of a processor: whose it is and when, and what the processor may do."""

    def __init__(
        self,
        key: Mapping[str, Any],
        key_state: KeyState,
        shared_state: KeyState,
        time: int,
        now: int,
        writable: str = "key",
        time_domain: TimeDomain | None = None,
    ) -> None:
        """`writable`: whether state of the key may be changed, or state that all keys share."""
        self.key = key
        """The values of the key's columns; empty for a broadcast row."""
        self.time = time
        """The event time of the row or timer."""
        self.now = now
        """The processing time of the batch."""
        self.time_domain = time_domain
        """In `on_timer`: by which time the timer was set."""
        self.emitted: list[tuple[str, int, Mapping[str, Any]]] = []
        self.handed_out: dict[str, tuple[ValueState[Any], Any, Any]] = {}
        """Lists and dicts that were read in this call, by name: the state,
        the copy that was handed out, and the value as it was.
        """
        self.side_outputs: Collection[str] = ()
        self._key_state, self._shared_state, self._writable = key_state, shared_state, writable

    def emit(self, *, to: str = MAIN, **values: object) -> None:
        """A result, with a value for each column of `outputs`, or a row for one of the `side_outputs`.

        Lists and dicts are copied: changing them afterwards does not change the row.
        """
        self._require_key_state("emit")
        if to != MAIN and to not in self.side_outputs:
            raise DefinitionError(
                f"emit(to={to!r}) names no side output, so the row would be lost; "
                f"declare it in side_outputs, which has {', '.join(map(repr, self.side_outputs)) or 'none'}"
            )
        self.emitted.append((to, self.time, {name: copy_storable(value) for name, value in values.items()}))

    def set_timer(self, name: str, at: int | datetime, *, time: TimeDomain = "event") -> None:
        """Calls `on_timer` with this name when the watermark reaches `at`; a time that has passed means the
        next millisecond.

        With `time="processing"` the clock decides: it is called in the first batch whose processing time is
        `at` or later, though no row comes. There is one timer per name and kind of time: the last one set
        counts.
        """
        require_choice("time", time, get_args(TimeDomain))
        state = self._require_key_state("set_timer")
        at_ms = _timer_millis(name, at)
        if time == "event":
            state.timers[name] = max(at_ms, self.time + 1)
        else:
            state.clock_timers[name] = max(at_ms, self.now + 1)

    def cancel_timer(self, name: str) -> None:
        """The timers of this name, by either time, do not fire if they were set."""
        state = self._require_key_state("cancel_timer")
        state.timers.pop(name, None)
        state.clock_timers.pop(name, None)

    def stored(self, *, shared: bool, write: bool) -> dict[str, Any]:
        """Stored values by name, of the key or shared by all keys; refuses a change where none is allowed."""
        if write and shared != (self._writable == "shared"):
            remedy = (
                "change it in process_broadcast()"
                if shared
                else "use shared=True for what broadcast rows change"
            )
            raise DefinitionError(f"{'shared' if shared else 'keyed'} state cannot be changed here; {remedy}")
        if not shared and self._writable == "shared":
            raise DefinitionError(
                "a broadcast row belongs to no key, so only shared state can be read here; "
                "declare it with shared=True"
            )
        return (self._shared_state if shared else self._key_state).values

    def can_write(self, *, shared: bool) -> bool:
        """Whether such state can be changed in this call."""
        return shared == (self._writable == "shared")

    def _require_key_state(self, call: str) -> KeyState:
        if self._writable == "shared":
            raise DefinitionError(
                f"{call}() belongs to a key, and a broadcast row has none; call it in process()"
            )
        return self._key_state


class Processor(ABC):
    """Subclass it, with `outputs` (the columns of results, besides the key), state and `process`."""

    outputs: ClassVar[Columns] = {}
    side_outputs: ClassVar[Mapping[str, Columns]] = {}
    """Further outputs by name, each with its columns; `Stream.side_output(name)` is the stream of one."""
    context: Context | None = None

    @abstractmethod
    def process(self, row: dict[str, Any], ctx: Context) -> None:
        """One row of the key."""

    def on_timer(self, ctx: Context, name: str) -> None:
        """A timer of the key is due; `ctx.time_domain` tells by which time it was set."""
        raise NotImplementedError(
            f"{type(self).__name__} sets the timer {name!r}, but has no on_timer(self, ctx, name)"
        )

    def process_broadcast(self, row: dict[str, Any], ctx: Context) -> None:
        """One row of the broadcast stream, which comes to every slot: it may change shared state."""
        raise NotImplementedError(
            f"{type(self).__name__} is given a broadcast stream, but has no process_broadcast(self, row, ctx)"
        )

    def __repr__(self) -> str:
        """The type and its state: what stored state depends on."""
        states = ", ".join(f"{name}={declared!r}" for name, declared in find_states(type(self)).items())
        return f"{type(self).__name__}({states})"


def _timer_millis(name: str, at: Any) -> int:
    """The time of a timer in milliseconds; a datetime counts by its zone.
    A fraction is refused, and what no watermark or clock reaches.
    """
    try:
        millis = timestamps.value_to_millis(at)
    except (ValueError, OverflowError) as error:
        raise DefinitionError(f"set_timer({name!r}, {at!r}): that is not a time: {error}") from error
    if not timestamps.is_in_range(millis):
        raise DefinitionError(
            f"set_timer({name!r}, {at!r}): that is not a time: it is outside the years 1 to 9999"
        )
    return millis


def call_processor(
    processor: Processor, ctx: Context, call: Callable[[], None], row: Mapping[str, Any] | None = None
) -> None:
    """A call of the user's code, during which its state is that of `ctx`. What it raises names the row."""
    processor.context, ctx.side_outputs = ctx, processor.side_outputs
    try:
        call()
        for declared, copy, original in list(ctx.handed_out.values()):
            if copy != original:
                declared.write(ctx, copy)
    except Exception as error:
        add_values(error, row if row is not None else {**ctx.key, "event_time": ctx.time})
        raise
    finally:
        processor.context = None


def check_processor(
    processor: Processor, keys: tuple[str, ...], reserved: frozenset[str]
) -> dict[str, pl.Schema]:
    """The columns of each output.
    Refuses anything that is not a processor, and columns that every result has.
    """
    if not isinstance(processor, Processor):
        problem = (
            f"{processor!r} is not a processor"
            if not isinstance(processor, type)
            else f"{processor.__name__} is a class"
        )
        raise DefinitionError(f"process({problem}); give it an object of a subclass of mr.Processor")
    if MAIN in processor.side_outputs or "late" in processor.side_outputs:
        raise DefinitionError(
            "a side output cannot be named 'out' or 'late': results and refused rows are; use another name"
        )
    schemas = {}
    for output, columns in {MAIN: processor.outputs, **processor.side_outputs}.items():
        for name in columns:
            if name in keys or name in reserved:
                raise DefinitionError(
                    f"{type(processor).__name__} has {name!r} in its outputs, but results have a column of "
                    "that name; use another"
                )
            if name == "to":
                raise DefinitionError(
                    f"{type(processor).__name__} has 'to' in its outputs, but emit(to=...) names a side "
                    "output; use another name"
                )
        try:
            schemas[output] = pl.Schema(columns)
        except Exception as error:
            raise DefinitionError(
                f"{type(processor).__name__}: {dict(columns)} are not columns: {error}"
            ) from error
    return schemas
