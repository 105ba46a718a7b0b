"""WHERE in event time results are computed: windows. All intervals are `[start, end)`, in milliseconds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import TYPE_CHECKING, Any, TypeAlias, overload
from uuid import uuid4

import polars as pl

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.values.calls import explain_errors_of
from millrace.values.missing_names import missing_name

__all__ = [
    "Window",
    "WindowFn",
    "counted",
    "delta",
    "fixed",
    "global_window",
    "processing_time",
    "punctuated",
    "sessions",
    "sliding",
]

Window: TypeAlias = tuple[int, int]

FOREVER: Window = (durations.MIN_TIME, durations.MAX_TIME + 1)
"""The window of `global_window()`: all times that events can have.
The event time of its panes is the last of them.
"""
MAX_WINDOWS_PER_ROW = 100_000
"""The greatest number of sliding windows that contain one row."""


class WindowFn(ABC):
    """Assigns times to windows `[start, end)`. Subclasses are frozen and compare by value.

    For windows of your own, subclass it with `assign`; where windows of one key can merge, also with `merge`
    and `merging = True`.
    """

    merging = False
    """Whether windows of one key can merge (sessions)."""

    @abstractmethod
    def assign(self, at: int) -> list[Window]:
        """Every window that contains the time `at`, earliest first."""

    def merge(self, windows: Sequence[Window]) -> list[list[Window]]:
        """Groups the sorted windows of one key.
        A group becomes one window, from its first start to its last end.
        """
        return [[window] for window in windows]

    def __repr__(self) -> str:
        """By value: stored state is found again only if this stays the same."""
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
        )


@dataclass(frozen=True)
class Sliding(WindowFn):
    """Windows of `size` that start every `every`. Fixed windows are those where the two are equal."""

    size: int
    every: int
    offset: int = 0

    @property
    def slice_size(self) -> int:
        """The length of the slices from which windows are computed: no window starts or ends inside of a
        slice.

        `sliding("30s", every="20s")` has slices of 10 s: its windows [0, 30) and [20, 50) share the slice
        [20, 30).
        """
        return gcd(self.size, self.every)

    def first_end(self, at: int) -> int:
        """The end of the earliest window that contains `at`, which is the smallest window end above `at`."""
        return self.offset + self.size + ((at - self.size - self.offset) // self.every + 1) * self.every

    def last_end(self, at: int) -> int:
        """The end of the latest window that contains `at`."""
        return self.offset + (at - self.offset) // self.every * self.every + self.size

    def assign(self, at: int) -> list[Window]:
        """Every window that contains the event time `at`, earliest first."""
        ends = range(self.first_end(at), self.last_end(at) + 1, self.every)
        return [(end - self.size, end) for end in ends]

    def __str__(self) -> str:
        """As users write it."""
        return _format_sliding(
            self.size, self.every, repr(durations.format_millis(self.offset)) if self.offset else ""
        )


@dataclass(frozen=True, eq=False, repr=False)
class Unaligned(WindowFn):
    """Sliding windows whose offset comes from each row, so that keys end theirs at different times."""

    size: int
    every: int
    offset: pl.Expr

    def align(self, offset: int) -> Sliding:
        """The windows of the keys whose rows have this offset."""
        return Sliding(self.size, self.every, offset % self.every)

    def assign(self, at: int) -> list[Window]:
        """Raises: the offset is known only for a row."""
        raise DefinitionError(f"{self} has windows only for a row, not for the time {at} alone")

    def __str__(self) -> str:
        """As users write it."""
        return _format_sliding(self.size, self.every, str(self.offset))

    __repr__ = __str__


@dataclass(frozen=True)
class Sessions(WindowFn):
    """A window from the first row of a burst to `gap` after its last. Sessions of one key that overlap or
    touch merge.

    With a gap of 10, rows at 0 and 15 are two sessions, [0, 10) and [15, 25). A row at 8 has the session [8,
    18), which overlaps both, so all three become [0, 25).
    """

    gap: int
    merging = True

    def assign(self, at: int) -> list[Window]:
        """The session of a row on its own."""
        return [(at, at + self.gap)]

    def merge(self, windows: Sequence[Window]) -> list[list[Window]]:
        """Groups sessions that overlap or touch."""
        groups: list[list[Window]] = []
        last_end = 0
        for window in sorted(windows):
            if groups and window[0] <= last_end:
                groups[-1].append(window)
            else:
                groups.append([window])
            last_end = window[1] if len(groups[-1]) == 1 else max(last_end, window[1])
        return groups

    def __str__(self) -> str:
        """As users write it."""
        return f"sessions({durations.format_millis(self.gap)!r})"


@dataclass(frozen=True)
class GlobalWindow(WindowFn):
    """One window for all time. Its panes fire by triggers, or at the end of the stream."""

    def assign(self, at: int) -> list[Window]:  # noqa: ARG002 - any time is in it
        """The one window, for any time."""
        return [FOREVER]

    def __str__(self) -> str:
        """As users write it."""
        return "global_window()"


class Ordered(WindowFn):
    """Windows that depend on the rows of a key,
    processed in the order in which the watermark releases them.
    """

    def assign(self, at: int) -> list[Window]:
        """Raises: the window depends on the rows before."""
        raise DefinitionError(f"{self} has no windows for the time {at} alone: the rows before it decide")


@dataclass(frozen=True)
class Counted(Ordered):
    """Windows of `size` rows, one after every `every` rows."""

    size: int
    every: int

    def __str__(self) -> str:
        """As users write it."""
        return (
            f"counted({self.size})"
            if self.size == self.every
            else f"counted({self.size}, every={self.every})"
        )


@dataclass(frozen=True)
class Delta(Ordered):
    """Windows of rows whose `column` differs by at most `threshold`, see `delta`."""

    column: str
    threshold: float
    every: float | None = None

    def __str__(self) -> str:
        """As users write it."""
        every = "" if self.every is None else f", every={self.every}"
        return f"delta({self.column!r}, {self.threshold}{every})"


@dataclass(frozen=True, eq=False, repr=False)
class Punctuated(Ordered):
    """Windows that end with a row for which `expr` holds."""

    expr: pl.Expr
    token: str = field(default_factory=lambda: uuid4().hex)

    def __str__(self) -> str:
        """As users write it."""
        return f"punctuated({self.expr})"

    __repr__ = __str__


@dataclass(frozen=True)
class ProcessingTime(WindowFn):
    """Windows in processing time: the clock of the batch assigns rows to windows, and is their watermark."""

    window: WindowFn

    @property
    def merging(self) -> bool:  # type: ignore[override]  # depends on the inner windows
        """Whether the inner windows can merge."""
        return self.window.merging

    def assign(self, at: int) -> list[Window]:
        """The inner windows that contain a time of the clock."""
        return self.window.assign(at)

    def merge(self, windows: Sequence[Window]) -> list[list[Window]]:
        """Merges as the inner windows do."""
        return self.window.merge(windows)

    def __str__(self) -> str:
        """As users write it."""
        return f"processing_time({self.window})"


@overload
def fixed(size: Duration, *, offset: Duration = 0) -> Sliding: ...


@overload
def fixed(size: Duration, *, offset: pl.Expr) -> Unaligned: ...


def fixed(size: Duration, *, offset: Duration | pl.Expr = 0) -> Sliding | Unaligned:
    """Windows of `size` without gap or overlap, from `offset` on.
    An expression as `offset` gives each key its own.
    """
    length = durations.parse_positive(size, name="size")
    return _make_sliding(length, length, offset)


@overload
def sliding(size: Duration, *, every: Duration, offset: Duration = 0) -> Sliding: ...


@overload
def sliding(size: Duration, *, every: Duration, offset: pl.Expr) -> Unaligned: ...


def sliding(size: Duration, *, every: Duration, offset: Duration | pl.Expr = 0) -> Sliding | Unaligned:
    """Windows of `size` that start every `every`, so an event is in `size / every` of them."""
    length, step = durations.parse_positive(size, name="size"), durations.parse_positive(every, name="every")
    if step > length:
        raise DefinitionError(
            f"every={every!r} is longer than size={size!r}, so events between windows would be lost; use "
            "every <= size"
        )
    if length // step > MAX_WINDOWS_PER_ROW:
        raise DefinitionError(
            f"sliding({size!r}, every={every!r}) puts each row into {length // step:,} windows, more than "
            f"can be computed in time; use a longer every, so that there are at most {MAX_WINDOWS_PER_ROW:,}"
        )
    return _make_sliding(length, step, offset)


def sessions(gap: Duration) -> Sessions:
    """A window per burst of rows of a key: it ends when no row arrives for `gap` of event time."""
    return Sessions(durations.parse_positive(gap, name="gap"))


def global_window() -> GlobalWindow:
    """One window for all time, which is also the default.
    Use a trigger that fires before the end of the stream.
    """
    return GlobalWindow()


def counted(n: int, *, every: int | None = None) -> Counted:
    """Windows of `n` rows of a key in order of event time; with `every`,
    one after every `every` rows, overlapping.
    """
    size = durations.check_whole(n, name="n", minimum=1)
    step = size if every is None else durations.check_whole(every, name="every", minimum=1)
    if step > size:
        raise DefinitionError(
            f"every={every} is greater than n={n}, so rows between windows would be lost; use every <= n"
        )
    return Counted(size, step)


def delta(column: str, threshold: float, *, every: float | None = None) -> Delta:
    """A window ends before the row whose `column` differs by more than `threshold` from that of its first
    row.

    With `every`, windows overlap: each time `column` has changed by more than `every` since the last window,
    a window has the rows that differ by at most `threshold` from the newest.
    """
    for name, value in (("threshold", threshold), ("every", threshold if every is None else every)):
        if not is_difference(value):
            raise DefinitionError(f"{name}={value!r} is not a difference; use a number from 0 on")
    return Delta(column, threshold, every)


def punctuated(expr: pl.Expr) -> Punctuated:
    """A window ends with each row for which `expr` holds."""
    if not isinstance(expr, pl.Expr):
        raise DefinitionError(
            f"punctuated({expr!r}) needs a polars expression that is true where a window ends"
        )
    return Punctuated(expr)


def processing_time(window: WindowFn) -> ProcessingTime:
    """The same windows in processing time: the clock at the arrival of a row decides about its window."""
    if isinstance(window, ProcessingTime):
        raise DefinitionError(
            f"processing_time({window}) needs windows in event time, such as windows.fixed('1m')"
        )
    return ProcessingTime(window)


if not TYPE_CHECKING:  # a type checker would take every name that is missing for Any

    def __getattr__(name: str) -> Any:
        raise missing_name("millrace.windows", name, __dir__())


def __dir__() -> list[str]:
    """Only the public names, for completion."""
    return __all__


def is_difference(value: Any) -> bool:
    """Whether it is a number from 0 on."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _make_sliding(size: int, every: int, offset: Duration | pl.Expr) -> Sliding | Unaligned:
    if isinstance(offset, pl.Expr):
        return Unaligned(size, every, offset)
    return Sliding(size, every, durations.parse_bounded(offset, name="offset") % every)


def _format_sliding(size: int, every: int, offset: str) -> str:
    offset_argument = f", offset={offset}" if offset else ""
    if size == every:
        return f"fixed({durations.format_millis(size)!r}{offset_argument})"
    return (
        f"sliding({durations.format_millis(size)!r}, "
        f"every={durations.format_millis(every)!r}{offset_argument})"
    )


explain_errors_of(globals(), *(name for name in __all__ if name.islower()))
