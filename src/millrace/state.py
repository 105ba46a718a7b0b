"""State of a processor: what it keeps per key from one row to the next, as attributes of its class. Triggers
of a user's own keep theirs in the same way, per key and window.

    class Quiet(mr.Processor):
        clicks = state.value(0, ttl="1h")
        pages: state.ListState[str] = state.list()

While a row or a timer is processed, `self.clicks` and `self.pages` are those of its key. Nothing else is kept
between calls.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Never, Protocol, overload

from typing_extensions import TypeVar

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.values.calls import explain_errors_of
from millrace.values.storable import check_storable, copy_storable

__all__ = ["ListState", "MapState", "ValueState", "list", "map", "value"]

T = TypeVar("T", default=Any)
K = TypeVar("K", default=Any)
NO_EXPIRY = durations.END_OF_STREAM
"""When values without a time to live end."""


@dataclass
class KeyState:
    """All that is kept of one key, or with the rules that all keys share."""

    values: dict[str, Any] = field(default_factory=dict)
    """By name, each value with the time at which it ends: a pair, a list of pairs, or a dict of pairs."""
    timers: dict[str, int] = field(default_factory=dict)
    """Timers in event time."""
    clock_timers: dict[str, int] = field(default_factory=dict)
    """Timers in processing time."""
    last_time: int = -NO_EXPIRY
    """The latest event time of a row or timer."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is lost when this is forgotten."""
        return not self.values and not self.timers and not self.clock_timers


class StateContext(Protocol):
    """One call of a user's code, and the state that it may use."""

    handed_out: dict[str, tuple[ValueState[Any], Any, Any]]

    @property
    def time(self) -> int:
        """The time by which values end."""

    def stored(self, *, shared: bool, write: bool) -> dict[str, Any]:
        """Stored values by name; refuses a change where none is allowed."""

    def can_write(self, *, shared: bool) -> bool:
        """Whether such state can be changed in this call."""


class StateOwner(Protocol):
    """An object whose class declares state: a processor, or a trigger of a user's own."""

    @property
    def context(self) -> StateContext | None:
        """The call that is made now."""


@dataclass(eq=False, repr=False)
class State:
    """One declaration in the class of a processor. Use `state.value`, `state.list` or `state.map`."""

    kind: ClassVar[str]
    """Part of what the stored state depends on."""
    ttl: int | None
    shared: bool
    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        """State is stored under the name of its attribute."""
        self.name = name

    def __repr__(self) -> str:
        """Stored state is found again only if this stays the same."""
        return f"{self.kind}({'shared' if self.shared else ''})"

    def __delete__(self, owner: StateOwner) -> None:
        """The key keeps nothing under this name any more."""
        ctx = _require_context(owner)
        ctx.stored(shared=self.shared, write=True).pop(self.name, None)
        ctx.handed_out.pop(self.name, None)

    def expires_at(self, ctx: StateContext) -> int:
        """When a value that is written now ends."""
        return NO_EXPIRY if self.ttl is None else ctx.time + self.ttl


class ValueState(State, Generic[T]):
    """One value per key; reading the attribute gives the value itself."""

    kind = "value"
    default: T

    @overload
    def __get__(self, owner: None, kind: type) -> ValueState[T]: ...
    @overload
    def __get__(self, owner: StateOwner, kind: type) -> T: ...
    def __get__(self, owner: StateOwner | None, kind: type) -> ValueState[T] | T:
        """The default once the time to live is over.
        A list or dict is a copy for this call; changed in place, it is set after the call.
        """
        if owner is None:
            return self
        ctx = _require_context(owner)
        current, expires = ctx.stored(shared=self.shared, write=False).get(
            self.name, (self.default, NO_EXPIRY)
        )
        current = current if ctx.time < expires else self.default
        if isinstance(current, builtins.list | dict):
            if self.name not in ctx.handed_out:
                ctx.handed_out[self.name] = (self, copy_storable(current), current)
            current = ctx.handed_out[self.name][1]
        typed: T = current
        return typed

    def __set__(self, owner: StateOwner, new_value: T) -> None:
        """Another value, whose time to live begins now."""
        ctx = _require_context(owner)
        self.write(ctx, new_value)
        ctx.handed_out.pop(self.name, None)

    def write(self, ctx: StateContext, new_value: T) -> None:
        """The same while a context is at hand."""
        ctx.stored(shared=self.shared, write=True)[self.name] = (
            check_storable(new_value, self.name),
            self.expires_at(ctx),
        )


@dataclass(eq=False, repr=False)
class _Collection(State):
    """A list or a map: the attribute of the class declares it;
    that of a processor at work is the same, of the key at hand.
    """

    context: StateContext | None = None

    def __set__(self, owner: StateOwner, new_value: Never) -> None:
        """Refused: a collection is changed item by item."""
        raise DefinitionError(
            f"{type(owner).__name__}.{self.name} = … : change it in place, with append() "
            "or [...] = …, or del it"
        )

    @property
    def _bound_context(self) -> StateContext:
        if self.context is None:
            raise DefinitionError(
                f"{self.name or self.kind}: state belongs to a key, and can be used only while a row or a "
                "timer is processed"
            )
        return self.context

    def _stored(self, *, write: bool) -> dict[str, Any]:
        return self._bound_context.stored(shared=self.shared, write=write)

    def _hand_out(self, stored: Any) -> Any:
        """An item inside the collection: itself, or a copy where it must not be changed."""
        return stored if self._bound_context.can_write(shared=self.shared) else copy_storable(stored)


class ListState(_Collection, Iterable[T]):
    """A list per key: it grows at the end, and what is too old is no longer in it."""

    kind = "list"

    def __get__(self, owner: StateOwner | None, kind: type) -> ListState[T]:
        """The list of the key at hand."""
        return self if owner is None else ListState(self.ttl, self.shared, self.name, _require_context(owner))

    def append(self, item: T) -> None:
        """Adds an item, whose time to live begins now."""
        self._stored(write=True)[self.name] = [
            *self._live_pairs(),
            (check_storable(item, self.name), self.expires_at(self._bound_context)),
        ]

    def __iter__(self) -> Iterator[T]:
        """In the order in which they were added."""
        return iter([self._hand_out(item) for item, _ in self._live_pairs()])

    def __len__(self) -> int:
        """How many there are."""
        return len(self._live_pairs())

    def _live_pairs(self) -> builtins.list[tuple[T, int]]:
        pairs = self._stored(write=False).get(self.name, [])
        return [pair for pair in pairs if self._bound_context.time < pair[1]]


class MapState(_Collection, MutableMapping[K, T]):
    """A dict per key, each entry with its own time to live."""

    kind = "map"

    def __get__(self, owner: StateOwner | None, kind: type) -> MapState[K, T]:
        """The dict of the key at hand."""
        return self if owner is None else MapState(self.ttl, self.shared, self.name, _require_context(owner))

    def __getitem__(self, key: K) -> T:
        """The entry that was set last under this key."""
        entry, expires = self._pairs()[key]
        if self._bound_context.time >= expires:
            raise KeyError(key)
        found: T = self._hand_out(entry)
        return found

    def __setitem__(self, key: K, new_value: T) -> None:
        """Another entry, whose time to live begins now."""
        self._stored(write=True).setdefault(self.name, {})[check_storable(key, self.name)] = (
            check_storable(new_value, self.name),
            self.expires_at(self._bound_context),
        )

    def __delitem__(self, key: K) -> None:
        """Nothing is kept under this key any more."""
        if key not in iter(self):
            raise KeyError(key)
        stored = self._stored(write=True)
        del stored[self.name][key]
        if not stored[self.name]:
            del stored[self.name]

    def __iter__(self) -> Iterator[K]:
        """The keys, in the order in which they were first set."""
        now = self._bound_context.time
        return iter([key for key, (_, expires) in self._pairs().items() if now < expires])

    def __len__(self) -> int:
        """How many entries there are."""
        return len(builtins.list(iter(self)))

    def _pairs(self) -> dict[K, tuple[T, int]]:
        pairs: dict[K, tuple[T, int]] = self._stored(write=False).get(self.name, {})
        return pairs


@overload
def value(*, ttl: Duration | None = None, shared: bool = False) -> ValueState[Any]: ...
@overload
def value(default: T, *, ttl: Duration | None = None, shared: bool = False) -> ValueState[T]: ...
def value(default: Any = None, *, ttl: Duration | None = None, shared: bool = False) -> ValueState[Any]:
    """One value: `self.name` reads it, `self.name = x` writes it, `del self.name` forgets it.

    A list or dict may be changed in place (`self.name.append(x)`), which writes it, too. Each key begins with
    its own copy of `default`. `ttl`: how long, in event time, a value is kept after it was written; `shared`:
    one for all keys, changed by broadcast rows alone.
    """
    declared: ValueState[Any] = ValueState(_ttl_millis(ttl), shared)
    declared.default = check_storable(default, "default")
    return declared


def list(*, ttl: Duration | None = None, shared: bool = False) -> ListState[T]:
    """A list: `self.name.append(x)`, `for x in self.name`, `len(self.name)`, `del self.name`.
    Each item has its own time to live.
    """
    return ListState(_ttl_millis(ttl), shared)


def map(*, ttl: Duration | None = None, shared: bool = False) -> MapState[K, T]:
    """A dict: `self.name[key] = x`, `self.name.get(key)`, `del self.name[key]`.
    Each entry has its own time to live.
    """
    return MapState(_ttl_millis(ttl), shared)


def __dir__() -> builtins.list[str]:
    """What completion shows: the vocabulary, without what the module imports."""
    return __all__


def find_states(owner: type) -> dict[str, State]:
    """The state that a class of processors or triggers declares, by name, with that of its base classes."""
    found = {
        name: declared
        for base in reversed(owner.__mro__)
        for name, declared in vars(base).items()
        if isinstance(declared, State)
    }
    return dict(sorted(found.items()))


def _ttl_millis(ttl: Duration | None) -> int | None:
    return None if ttl is None else durations.parse_positive(ttl, name="ttl")


def _require_context(owner: StateOwner) -> StateContext:
    if owner.context is None:
        raise DefinitionError(
            f"{type(owner).__name__}: state belongs to a key, and can be used only while a row "
            "or a timer is processed"
        )
    return owner.context


explain_errors_of(globals(), "value", "list", "map")
