"""The clock of ingestion; tests use one of their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """The present time, and a way to wait."""

    def now(self) -> int:
        """Whole milliseconds since the epoch."""

    def sleep(self, duration: int) -> None:
        """Waits for this many milliseconds."""


class WallClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Whole milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def sleep(self, duration: int) -> None:
        """Blocks the thread."""
        time.sleep(duration / 1000)
