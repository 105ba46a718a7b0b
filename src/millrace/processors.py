"""State and timers per key, a record at a time: what a user writes who needs more than windows and patterns.

    class Quiet(mr.Processor):
        shows = {"clicks": pl.Int64}
        clicks = processors.value(0, ttl="1h")

        def process(self, row, ctx):
            self.clicks += 1
            ctx.set_timer("quiet", row["event_time"] + 30_000)

        def on_timer(self, ctx, name):
            ctx.emit(clicks=self.clicks)
            del self.clicks

    mr.read(CLICKS).group_by("user").process(Quiet())

Rows come in order of event time, as the watermark releases them; those behind it are refused. A timer at T fires once, after all rows
before T and before all others. Nothing but cells (`value`, `items`, `entries`) is kept between calls: an object is made once for all keys, and
anew after every restart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, overload

import polars as pl

from millrace import durations, timestamps
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.values.calls import explain_errors_of

__all__ = ["Context", "Processor", "entries", "items", "value"]

Columns: TypeAlias = Mapping[str, Any]
NO_EXPIRY = 2**62
"""When what has no time to live ends."""
STORABLE_TYPES = "text, numbers, booleans, bytes, None, and lists and dicts of them"


@dataclass
class KeyState:
    """All that is kept of one key, or with the rules that all keys share: cells by name, timers by name, and the last time anything happened."""

    cells: dict[str, Any] = field(default_factory=dict)
    """Of a `value` a pair, of `items` a list of pairs, of `entries` a dict of pairs: what it is, and until when."""
    timers: dict[str, int] = field(default_factory=dict)
    alarms: dict[str, int] = field(default_factory=dict)
    """Timers by the clock."""
    last_time: int = -NO_EXPIRY

    @property
    def is_empty(self) -> bool:
        """Whether nothing is lost when this is forgotten."""
        return not self.cells and not self.timers and not self.alarms


class Context:
    """What a processor is told, and what it may ask for, during one call."""

    def __init__(
        self,
        key: Mapping[str, Any],
        key_state: KeyState,
        shared_state: KeyState,
        time: int,
        now: int,
        writable: str = "key",
    ) -> None:
        """`writes`: whether the cells of the key may be changed, or those that all keys share."""
        self.key = key
        """The values of the key's columns; empty for a broadcast row."""
        self.time = time
        """The event time of the row or timer."""
        self.now = now
        """The processing time of the batch."""
        self.emitted: list[tuple[str, int, Mapping[str, Any]]] = []
        self.handed_out: dict[str, tuple[Value, Any, Any]] = {}
        """Lists and dicts that were read in this call, by the name of the cell: the cell, the copy that was handed out, and what it was."""
        self._key_state, self._shared_state, self._writable = key_state, shared_state, writable

    def emit(self, **values: Any) -> None:
        """A result, with a value for each column of `shows`."""
        self.emit_to("out", **values)

    def emit_to(self, side: str, **values: Any) -> None:
        """A row for one of `sides`. Lists and dicts are copied: changing them afterwards does not change the row."""
        self.emitted.append((side, self.time, {name: _copy(value) for name, value in values.items()}))

    def set_timer(self, name: str, at: int) -> None:
        """`on_timer` is called with this name when the watermark reaches `at`; a time that has passed means the next millisecond. One timer per name: the last set counts."""
        self._require_key_state("set_timer").timers[name] = max(
            _timer_millis("set_timer", name, at), self.time + 1
        )

    def set_alarm(self, name: str, at: int) -> None:
        """The same by the clock: in the first batch whose processing time is `at` or later, though no row comes."""
        self._require_key_state("set_alarm").alarms[name] = max(
            _timer_millis("set_alarm", name, at), self.now + 1
        )

    def cancel(self, name: str) -> None:
        """The timer and the alarm of this name do not fire, if they were set."""
        state = self._require_key_state("cancel")
        state.timers.pop(name, None)
        state.alarms.pop(name, None)

    def cells(self, *, shared: bool, write: bool) -> dict[str, Any]:
        """Where a cell finds what is kept."""
        if write and shared != (self._writable == "shared"):
            remedy = (
                "change it in process_broadcast()"
                if shared
                else "use shared=True for what broadcast rows say"
            )
            raise DefinitionError(
                f"a {'shared' if shared else 'keyed'} cell cannot be changed here; {remedy}"
            )
        if not shared and self._writable == "shared":
            raise DefinitionError(
                "a broadcast row belongs to no key, so only shared cells can be read here; declare the cell with shared=True"
            )
        return (self._shared_state if shared else self._key_state).cells

    def can_write(self, *, shared: bool) -> bool:
        """Whether such cells can be changed in this call."""
        return shared == (self._writable == "shared")

    def _require_key_state(self, call: str) -> KeyState:
        if self._writable == "shared":
            raise DefinitionError(
                f"{call}() belongs to a key, and a broadcast row has none; set it in process()"
            )
        return self._key_state


class Processor(ABC):
    """Subclass it, with `shows` (the columns of results, besides the key), cells and `process`."""

    shows: ClassVar[Columns] = {}
    sides: ClassVar[Mapping[str, Columns]] = {}
    """Further outputs, each with its columns; `Stream.side(name)` is what comes out there."""
    context: Context | None = None

    @abstractmethod
    def process(self, row: dict[str, Any], ctx: Context) -> None:
        """One row of the key."""

    def on_timer(self, ctx: Context, name: str) -> None:
        """A timer or an alarm of the key is due."""
        raise NotImplementedError(
            f"{type(self).__name__} sets the timer {name!r}, but has no on_timer(self, ctx, name)"
        )

    def process_broadcast(self, row: dict[str, Any], ctx: Context) -> None:
        """One row of the broadcast stream, which comes to every slot: it may change shared cells."""
        raise NotImplementedError(
            f"{type(self).__name__} is given a broadcast stream, but has no process_broadcast(self, row, ctx)"
        )

    def __repr__(self) -> str:
        """Its type and its cells: what state depends on."""
        cells = ", ".join(f"{name}={cell!r}" for name, cell in find_cells(type(self)).items())
        return f"{type(self).__name__}({cells})"


@dataclass(eq=False)
class StateCell:
    """What is kept of a key under one name. Use `value`, `items` or `entries`."""

    ttl: int | None
    shared: bool
    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        """It is called as the attribute is."""
        self.name = name

    def __repr__(self) -> str:
        """Its kind, which state depends on."""
        return f"{type(self).__name__.lower()}({'shared' if self.shared else ''})"

    def expires_at(self, ctx: Context) -> int:
        """When what is written now ends."""
        return NO_EXPIRY if self.ttl is None else ctx.time + self.ttl

    def __set__(self, owner: Processor, new_value: Any) -> None:
        """Only a value can be set as a whole."""
        raise DefinitionError(
            f"{type(owner).__name__}.{self.name} = … : change it in place, with append() or [...] = …, or del it"
        )

    def __delete__(self, owner: Processor) -> None:
        """Nothing is kept any more."""
        ctx = _require_context(owner)
        ctx.cells(shared=self.shared, write=True).pop(self.name, None)
        ctx.handed_out.pop(self.name, None)

    def hand_out(self, ctx: Context, value: Any) -> Any:
        """A value inside the cell as it is handed out: itself, or a copy where it must not be changed."""
        return value if ctx.can_write(shared=self.shared) else _copy(value)


class Value(StateCell):
    """One value."""

    default: Any = None

    @overload
    def __get__(self, owner: None, kind: type) -> Value: ...
    @overload
    def __get__(self, owner: Processor, kind: type) -> Any: ...
    def __get__(self, owner: Processor | None, kind: type) -> Any:
        """What was set last, unless its time is over. A list or dict is a copy for this call; changed in place, it is set after the call."""
        if owner is None:
            return self
        ctx = _require_context(owner)
        current, expires = ctx.cells(shared=self.shared, write=False).get(
            self.name, (self.default, NO_EXPIRY)
        )
        current = current if ctx.time < expires else self.default
        if not isinstance(current, list | dict):
            return current
        if self.name not in ctx.handed_out:
            ctx.handed_out[self.name] = (self, _copy(current), current)
        return ctx.handed_out[self.name][1]

    def __set__(self, owner: Processor, new_value: Any) -> None:
        """Another value, which lives from now on."""
        ctx = _require_context(owner)
        self.write(ctx, new_value)
        ctx.handed_out.pop(self.name, None)

    def write(self, ctx: Context, new_value: Any) -> None:
        """Another value, which lives from now on."""
        ctx.cells(shared=self.shared, write=True)[self.name] = (
            check_storable(new_value, self.name),
            self.expires_at(ctx),
        )


class Items(StateCell):
    """A list."""

    @overload
    def __get__(self, owner: None, kind: type) -> Items: ...
    @overload
    def __get__(self, owner: Processor, kind: type) -> ListState: ...
    def __get__(self, owner: Processor | None, kind: type) -> Items | ListState:
        """The list of the key at hand."""
        return self if owner is None else ListState(self, _require_context(owner))


@dataclass(frozen=True, eq=False)
class ListState:
    """A list of one key: it grows at the end, and what is too old is no longer there."""

    cell: Items
    ctx: Context

    def append(self, item: Any) -> None:
        """One more."""
        cells = self.ctx.cells(shared=self.cell.shared, write=True)
        cells[self.cell.name] = [
            *self._live_pairs(),
            (check_storable(item, self.cell.name), self.cell.expires_at(self.ctx)),
        ]

    def __iter__(self) -> Iterator[Any]:
        """In the order they were added."""
        return iter([self.cell.hand_out(self.ctx, item) for item, _ in self._live_pairs()])

    def __len__(self) -> int:
        """How many there are."""
        return len(self._live_pairs())

    def _live_pairs(self) -> list[tuple[Any, int]]:
        pairs = self.ctx.cells(shared=self.cell.shared, write=False).get(self.cell.name, [])
        return [pair for pair in pairs if self.ctx.time < pair[1]]


class Entries(StateCell):
    """A dict."""

    @overload
    def __get__(self, owner: None, kind: type) -> Entries: ...
    @overload
    def __get__(self, owner: Processor, kind: type) -> MapState: ...
    def __get__(self, owner: Processor | None, kind: type) -> Entries | MapState:
        """The dict of the key at hand."""
        return self if owner is None else MapState(self, _require_context(owner))


@dataclass(frozen=True, eq=False)
class MapState(MutableMapping[Any, Any]):
    """A dict of one key, each entry with its own time to live."""

    cell: Entries
    ctx: Context

    def __getitem__(self, key: Any) -> Any:
        """What was set last under this key."""
        entry, expires = self._pairs()[key]
        if self.ctx.time >= expires:
            raise KeyError(key)
        return self.cell.hand_out(self.ctx, entry)

    def __setitem__(self, key: Any, new_value: Any) -> None:
        """Another value, which lives from now on."""
        cells = self.ctx.cells(shared=self.cell.shared, write=True)
        cells.setdefault(self.cell.name, {})[check_storable(key, self.cell.name)] = (
            check_storable(new_value, self.cell.name),
            self.cell.expires_at(self.ctx),
        )

    def __delitem__(self, key: Any) -> None:
        """Nothing is kept under this key any more."""
        if key not in iter(self):
            raise KeyError(key)
        cells = self.ctx.cells(shared=self.cell.shared, write=True)
        del cells[self.cell.name][key]
        if not cells[self.cell.name]:
            del cells[self.cell.name]

    def __iter__(self) -> Iterator[Any]:
        """The keys, in the order they were first set."""
        return iter([key for key, (_, expires) in self._pairs().items() if self.ctx.time < expires])

    def __len__(self) -> int:
        """How many entries there are."""
        return len(list(iter(self)))

    def _pairs(self) -> dict[Any, tuple[Any, int]]:
        pairs: dict[Any, tuple[Any, int]] = self.ctx.cells(shared=self.cell.shared, write=False).get(
            self.cell.name, {}
        )
        return pairs


def value(default: Any = None, *, ttl: Duration | None = None, shared: bool = False) -> Any:
    """A cell for one value: `self.name` reads it, `self.name = x` writes it, `del self.name` forgets it.

    A list or dict may be changed in place (`self.name.append(x)`), which writes it, too. Each key begins with its own copy of `default`.
    `ttl`: how long, in event time, what was written is kept; `shared`: one for all keys, changed by broadcast rows alone.
    """
    cell = Value(_ttl_millis(ttl), shared)
    cell.default = check_storable(default, "default")
    return cell


def items(*, ttl: Duration | None = None, shared: bool = False) -> Items:
    """A cell for a list: `self.name.append(x)`, `for x in self.name`, `len(self.name)`, `del self.name`. Each item has its own time to live."""
    return Items(_ttl_millis(ttl), shared)


def entries(*, ttl: Duration | None = None, shared: bool = False) -> Entries:
    """A cell for a dict: `self.name[key] = x`, `self.name.get(key)`, `del self.name[key]`. Each entry has its own time to live."""
    return Entries(_ttl_millis(ttl), shared)


def find_cells(kind: type) -> dict[str, StateCell]:
    """The cells of a processor by name, also those it inherits."""
    cells = {
        name: cell
        for base in reversed(kind.__mro__)
        for name, cell in vars(base).items()
        if isinstance(cell, StateCell)
    }
    return dict(sorted(cells.items()))


def check_storable(value: Any, name: str) -> Any:
    """A value that comes back from storage as it was; refuses others."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, list):
        return [check_storable(item, name) for item in value]
    if isinstance(value, dict):
        return {check_storable(key, name): check_storable(item, name) for key, item in value.items()}
    raise DefinitionError(
        f"{name}: {value!r} is {type(value).__name__}, which would not come back from storage as it was; keep {STORABLE_TYPES}"
    )


def _timer_millis(call: str, name: str, at: Any) -> int:
    """The time of a timer in milliseconds; a datetime counts by its zone. A fraction is refused, and what no watermark or clock reaches."""
    try:
        millis = timestamps.value_to_millis(at)
    except (ValueError, OverflowError) as error:
        raise DefinitionError(f"{call}({name!r}, {at!r}): that is not a time: {error}") from error
    if not timestamps.is_in_range(millis):
        raise DefinitionError(
            f"{call}({name!r}, {at!r}): that is not a time: it is outside the years 1 to 9999"
        )
    return millis


def _copy(value: Any) -> Any:
    """The same value, of which nothing that can be changed is shared."""
    if isinstance(value, list):
        return [_copy(item) for item in value]
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return value


def call_processor(processor: Processor, ctx: Context, call: Callable[[], None]) -> None:
    """A call of the user's code, during which cells mean those of `ctx`."""
    processor.context = ctx
    try:
        call()
        for cell, copy, original in list(ctx.handed_out.values()):
            if copy != original:
                cell.write(ctx, copy)
    finally:
        processor.context = None


def check_processor(
    processor: Processor, keys: tuple[str, ...], reserved: frozenset[str]
) -> dict[str, pl.Schema]:
    """The columns of each output; refuses what is no processor, and columns that results have anyway."""
    if not isinstance(processor, Processor):
        problem = (
            f"{processor!r} is not a processor"
            if not isinstance(processor, type)
            else f"{processor.__name__} is a class"
        )
        raise DefinitionError(f"process({problem}); give it an object of a subclass of mr.Processor")
    if "out" in processor.sides or "late" in processor.sides:
        raise DefinitionError(
            "a side output cannot be named 'out' or 'late': results and refused rows are; use another name"
        )
    schemas = {}
    for output, columns in {"out": processor.shows, **processor.sides}.items():
        for name in columns:
            if name in keys or name in reserved:
                raise DefinitionError(
                    f"{type(processor).__name__} shows {name!r}, but results have a column of that name; use another"
                )
        try:
            schemas[output] = pl.Schema(columns)
        except Exception as error:
            raise DefinitionError(
                f"{type(processor).__name__}: {dict(columns)} are no columns: {error}"
            ) from error
    return schemas


def _ttl_millis(ttl: Duration | None) -> int | None:
    return None if ttl is None else durations.parse_positive(ttl, name="ttl")


def _require_context(owner: Processor) -> Context:
    if owner.context is None:
        raise DefinitionError(
            f"{type(owner).__name__}: a cell belongs to a key, and is there only while a row or a timer is processed"
        )
    return owner.context


explain_errors_of(globals(), "value", "items", "entries")
