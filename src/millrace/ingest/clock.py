"""The clock that ingestion reads and waits by; tests bring their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and lets it pass."""

    def now(self) -> int:
        """Whole milliseconds since the epoch."""

    def sleep(self, duration: int) -> None:
        """Lets this many milliseconds pass."""


class WallClock:
    """The time of this machine."""

    def now(self) -> int:
        """Whole milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def sleep(self, duration: int) -> None:
        """Really waits."""
        time.sleep(duration / 1000)
