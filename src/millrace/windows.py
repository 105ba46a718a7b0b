"""WHERE in event time results are computed."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import gcd

from millrace import durations
from millrace.durations import Duration
from millrace.errors import DefinitionError


class WindowFn(ABC):
    """Assigns event times to windows `[start, end)`. Subclasses are frozen and compare by value."""

    merging = False
    """Whether windows of one key may grow into each other (sessions)."""

    @abstractmethod
    def assign(self, at: int) -> list[tuple[int, int]]:
        """Every window that contains the event time `at`, earliest first."""


@dataclass(frozen=True)
class Sliding(WindowFn):
    """A window of `size` every `every`; fixed windows are those where the two are equal."""

    size: int
    every: int
    offset: int = 0

    @property
    def slice(self) -> int:
        """The longest stretch of time that no window's edge divides."""
        return gcd(self.size, self.every)

    def first_end(self, at: int) -> int:
        """The end of the earliest window that contains `at`, which is the smallest window end above `at`."""
        return self.offset + self.size + ((at - self.size - self.offset) // self.every + 1) * self.every

    def last_end(self, at: int) -> int:
        """The end of the latest window that contains `at`."""
        return self.offset + (at - self.offset) // self.every * self.every + self.size

    def assign(self, at: int) -> list[tuple[int, int]]:
        """Every window that contains the event time `at`, earliest first."""
        ends = range(self.first_end(at), self.last_end(at) + 1, self.every)
        return [(end - self.size, end) for end in ends]

    def __str__(self) -> str:
        """As a user would write it."""
        offset = f", offset={durations.text(self.offset)!r}" if self.offset else ""
        if self.size == self.every:
            return f"fixed({durations.text(self.size)!r}{offset})"
        return f"sliding({durations.text(self.size)!r}, every={durations.text(self.every)!r}{offset})"


def fixed(size: Duration, *, offset: Duration = 0) -> Sliding:
    """Windows of `size` side by side, starting at multiples of `size` past `offset`."""
    length = durations.positive(size, name="size")
    return Sliding(length, length, durations.millis(offset, name="offset") % length)


def sliding(size: Duration, *, every: Duration, offset: Duration = 0) -> Sliding:
    """Windows of `size` that start every `every`, so that an event is in `size / every` of them."""
    length, step = durations.positive(size, name="size"), durations.positive(every, name="every")
    if step > length:
        raise DefinitionError(f"every={every!r} is longer than size={size!r}, so events between windows would be lost; use every <= size")
    return Sliding(length, step, durations.millis(offset, name="offset") % step)
