"""WHERE in event time results are computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any, TypeAlias, overload
from uuid import uuid4

import polars as pl

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError
from millrace.values.calls import explain_errors_of

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
"""The window of `global_window()`: all times that events can have; its panes are at the last of them."""
UNTIL_2262: Window = (-9_223_372_036_854, 9_223_372_036_854)
"""What it was in stored state of older versions."""
MAX_WINDOWS_PER_ROW = 100_000
"""In how many sliding windows a row may be."""


class WindowFn(ABC):
    """Assigns times to windows `[start, end)`. Subclasses are frozen and compare by value.

    A user's own is a subclass with `assign`, and with `merge` and `merging = True` where windows of one key grow into each other.
    """

    merging = False
    """Whether windows of one key may grow into each other (sessions)."""

    @abstractmethod
    def assign(self, at: int) -> list[Window]:
        """Every window that contains the time `at`, earliest first."""

    def merge(self, windows: Sequence[Window]) -> list[list[Window]]:
        """The windows of one key, sorted, in groups; each group becomes one window, from its first start to its last end."""
        return [[window] for window in windows]

    def __repr__(self) -> str:
        """By value: stored state is found again only if this stays the same."""
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
        )


@dataclass(frozen=True)
class Sliding(WindowFn):
    """A window of `size` every `every`; fixed windows are those where the two are equal."""

    size: int
    every: int
    offset: int = 0

    @property
    def slice_size(self) -> int:
        """The longest stretch of time that no window's edge divides."""
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
        """As a user would write it."""
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
        """The windows of a key with this offset."""
        return Sliding(self.size, self.every, offset % self.every)

    def assign(self, at: int) -> list[Window]:
        """Impossible without the row that says the offset."""
        raise DefinitionError(f"{self} has windows only for a row, not for the time {at} alone")

    def __str__(self) -> str:
        """As a user would write it."""
        return _format_sliding(self.size, self.every, str(self.offset))

    __repr__ = __str__


@dataclass(frozen=True)
class Sessions(WindowFn):
    """From the first row until `gap` after the last; sessions of one key that touch are one."""

    gap: int
    merging = True

    def assign(self, at: int) -> list[Window]:
        """The session of a row by itself."""
        return [(at, at + self.gap)]

    def merge(self, windows: Sequence[Window]) -> list[list[Window]]:
        """Those that overlap or touch."""
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
        """As a user would write it."""
        return f"sessions({durations.format_millis(self.gap)!r})"


@dataclass(frozen=True)
class GlobalWindow(WindowFn):
    """One window for ever; its panes come by triggers, or at the end of the stream."""

    def assign(self, at: int) -> list[Window]:  # noqa: ARG002 - any time is in it
        """The one window."""
        return [FOREVER]

    def __str__(self) -> str:
        """As a user would write it."""
        return "global_window()"


class Ordered(WindowFn):
    """Windows cut by the rows themselves, which are taken in the order in which the watermark releases them, key by key."""

    def assign(self, at: int) -> list[Window]:
        """Impossible: what comes before decides."""
        raise DefinitionError(f"{self} has no windows for the time {at} alone: the rows before it decide")


@dataclass(frozen=True)
class Counted(Ordered):
    """So many rows; `every` so many a window of the last `size`."""

    size: int
    every: int

    def __str__(self) -> str:
        """As a user would write it."""
        return (
            f"counted({self.size})"
            if self.size == self.every
            else f"counted({self.size}, every={self.every})"
        )


@dataclass(frozen=True)
class Delta(Ordered):
    """Rows whose `column` is within `threshold` of the window's first row; with `every`, of its last one, each time it moved that far."""

    column: str
    threshold: float
    every: float | None = None

    def __str__(self) -> str:
        """As a user would write it."""
        every = "" if self.every is None else f", every={self.every}"
        return f"delta({self.column!r}, {self.threshold}{every})"


@dataclass(frozen=True, eq=False, repr=False)
class Punctuated(Ordered):
    """Up to and with a row for which `expr` holds."""

    expr: pl.Expr
    token: str = field(default_factory=lambda: uuid4().hex)

    def __str__(self) -> str:
        """As a user would write it."""
        return f"punctuated({self.expr})"

    __repr__ = __str__


@dataclass(frozen=True)
class ProcessingTime(WindowFn):
    """The same windows in processing time: rows belong where the batch's clock stands, and the clock is their watermark."""

    window: WindowFn

    @property
    def merging(self) -> bool:  # type: ignore[override]  # as the windows inside do
        """Whether windows grow into each other."""
        return self.window.merging

    def assign(self, at: int) -> list[Window]:
        """The windows at a time of the clock."""
        return self.window.assign(at)

    def merge(self, windows: Sequence[Window]) -> list[list[Window]]:
        """As the windows inside do."""
        return self.window.merge(windows)

    def __str__(self) -> str:
        """As a user would write it."""
        return f"processing_time({self.window})"


@overload
def fixed(size: Duration, *, offset: Duration = 0) -> Sliding: ...


@overload
def fixed(size: Duration, *, offset: pl.Expr) -> Unaligned: ...


def fixed(size: Duration, *, offset: Duration | pl.Expr = 0) -> Sliding | Unaligned:
    """Windows of `size` side by side, starting at multiples of `size` past `offset`; an expression gives each key its own."""
    length = durations.parse_positive(size, name="size")
    return _make_sliding(length, length, offset)


@overload
def sliding(size: Duration, *, every: Duration, offset: Duration = 0) -> Sliding: ...


@overload
def sliding(size: Duration, *, every: Duration, offset: pl.Expr) -> Unaligned: ...


def sliding(size: Duration, *, every: Duration, offset: Duration | pl.Expr = 0) -> Sliding | Unaligned:
    """Windows of `size` that start every `every`, so that an event is in `size / every` of them."""
    length, step = durations.parse_positive(size, name="size"), durations.parse_positive(every, name="every")
    if step > length:
        raise DefinitionError(
            f"every={every!r} is longer than size={size!r}, so events between windows would be lost; use every <= size"
        )
    if length // step > MAX_WINDOWS_PER_ROW:
        raise DefinitionError(
            f"sliding({size!r}, every={every!r}) puts each row into {length // step:,} windows, which no machine shows in time; "
            f"use a longer every, so that there are at most {MAX_WINDOWS_PER_ROW:,}"
        )
    return _make_sliding(length, step, offset)


def sessions(gap: Duration) -> Sessions:
    """A window for each burst of rows of a key: it ends when nothing came for `gap`."""
    return Sessions(durations.parse_positive(gap, name="gap"))


def global_window() -> GlobalWindow:
    """One window for all time, as rows without a window have; say a trigger that fires before the end."""
    return GlobalWindow()


def counted(n: int, *, every: int | None = None) -> Counted:
    """Windows of `n` rows of a key, side by side or one for `every` so many rows, in order of event time."""
    size = durations.check_whole(n, name="n", minimum=1)
    step = size if every is None else durations.check_whole(every, name="every", minimum=1)
    if step > size:
        raise DefinitionError(
            f"every={every} is more than n={n}, so rows between windows would be lost; use every <= n"
        )
    return Counted(size, step)


def delta(column: str, threshold: float, *, every: float | None = None) -> Delta:
    """A window ends before the row whose `column` differs by more than `threshold` from its first row's.

    With `every` windows overlap: each time `column` has moved by more than `every` since the last one, a window shows the rows
    that differ by at most `threshold` from the newest.
    """
    for name, value in (("threshold", threshold), ("every", threshold if every is None else every)):
        if not _is_difference(value):
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
    """The same windows, but in processing time: a row is where the clock stands when it comes."""
    if isinstance(window, ProcessingTime):
        raise DefinitionError(
            f"processing_time({window}) needs windows in event time, such as windows.fixed('1m')"
        )
    return ProcessingTime(window)


def __dir__() -> list[str]:
    """What completion shows: the vocabulary, without what the module imports."""
    return __all__


def _is_difference(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _make_sliding(size: int, every: int, offset: Duration | pl.Expr) -> Sliding | Unaligned:
    if isinstance(offset, pl.Expr):
        return Unaligned(size, every, offset)
    return Sliding(size, every, durations.parse_bounded(offset, name="offset") % every)


def _format_sliding(size: int, every: int, offset: str) -> str:
    offset_argument = f", offset={offset}" if offset else ""
    if size == every:
        return f"fixed({durations.format_millis(size)!r}{offset_argument})"
    return f"sliding({durations.format_millis(size)!r}, every={durations.format_millis(every)!r}{offset_argument})"


explain_errors_of(
    globals(),
    "counted",
    "delta",
    "fixed",
    "global_window",
    "processing_time",
    "punctuated",
    "sessions",
    "sliding",
)
