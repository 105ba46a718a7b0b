"""The clock of batches: the wall clock, but never back, and by elapsed time where the wall clock is behind
the last batch.

Example: the wall clock jumps a year ahead for a moment, and a batch is planned then. From there on batches
would stand still for a year, and with them idle timeouts and timers. Instead their clock goes on from that
batch as time passes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from millrace import durations

JUMP_THRESHOLD = 60_000
"""Differences of wall clock and elapsed time from this on are logged, in milliseconds."""

_log = logging.getLogger("millrace.run")


def wall_clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def elapsed_time() -> int:
    """Milliseconds since some moment; it never jumps."""
    return time.monotonic_ns() // 1_000_000


class BatchClock:
    """Asked for the clock of the next batch.
    That is recorded with the batch, so a repeated batch has the same.
    """

    def __init__(
        self, wall: Callable[[], int] = wall_clock, elapsed: Callable[[], int] | None = None
    ) -> None:
        """`elapsed`: by default the machine's, where `wall` is;
        where another clock is given, that alone counts.
        """
        self._wall = wall
        self._elapsed = elapsed or (elapsed_time if wall is wall_clock else lambda: 0)
        self._anchor: tuple[int, int] | None = None
        """The wall clock, and the elapsed time at which it was read."""
        self._is_behind = False

    def after(self, last: int) -> int:
        """The clock of a batch that follows one at `last`."""
        wall, elapsed = self._wall(), self._elapsed()
        value, since = self._anchor or (last, elapsed)
        expected = max(last, value + elapsed - since)
        self._warn_about_jump(wall - expected, first=self._anchor is None)
        now = max(wall, expected)
        self._anchor = (now, elapsed)
        return now

    def _warn_about_jump(self, ahead: int, *, first: bool) -> None:
        if ahead > JUMP_THRESHOLD and not first and self._elapsed is not None:
            _log.warning(
                "the clock of this machine jumped %s ahead (or the machine was suspended); batches follow "
                "it, retention does not",
                durations.format_millis(ahead),
            )
        behind = ahead < -JUMP_THRESHOLD
        if behind and not self._is_behind:
            _log.warning(
                "the clock of this machine is %s behind the last batch, so it had jumped; "
                "batches go on by elapsed time",
                durations.format_millis(-ahead),
            )
        self._is_behind = behind
