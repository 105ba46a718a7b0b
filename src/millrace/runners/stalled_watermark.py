"""Says when a watermark stands still though events come, which partition holds it back, and what to do.

A run that has read events and written nothing says so too: when it ends, and when nothing has come for a
while. A user who tries a first program with a few events sees no result otherwise, and no reason.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millrace import durations

if TYPE_CHECKING:
    from millrace.engine.progress import WatermarkHold
    from millrace.runners import BatchReport

WARN_AFTER = 30.0
"""Seconds without movement after which a warning is due."""

_log = logging.getLogger("millrace.run")


@dataclass
class StalledWatermarkMonitor:
    """Watches the watermark of each operator.
    Batches only come while events do, so a watermark that does not move is held back.
    """

    clock: Callable[[], float]
    quiet_seconds: float = WARN_AFTER
    """Seconds without a batch after which a run that has written nothing says why."""
    followed_topics: frozenset[str] = frozenset()
    """Topics of which jobs follow the watermark of the writers."""
    last_moves: dict[str, tuple[int | None, float]] = field(default_factory=dict)
    """For each operator, its watermark and when it came there."""
    warned: set[tuple[str, int]] = field(default_factory=set)
    """The partitions that were named, until the watermark moves again."""
    rows_read: int = 0
    rows_written: int = 0
    holds: Mapping[str, WatermarkHold] = field(default_factory=dict)
    timer: threading.Timer | None = None

    def update(self, batch: BatchReport) -> None:
        """Takes a batch into account."""
        now = self.clock()
        self.rows_read += batch.counts.get("read", 0)
        self.rows_written += batch.counts.get("written", 0)
        self.holds = batch.holds
        for operator, watermark in batch.watermarks.items():
            before, since = self.last_moves.get(operator, (None, now))
            hold = batch.holds.get(operator)
            if watermark != before or hold is None:
                self.last_moves[operator] = (watermark, now)
                if hold is not None:
                    self.warned.discard((hold.topic, hold.partition))
                continue
            self.last_moves[operator] = (watermark, since)
            if now - since >= WARN_AFTER:
                self._warn(hold, f"the watermark of {operator} has not moved for {now - since:.0f}s")
        self._restart_timer()

    def close(self) -> None:
        """At the end of the run."""
        self._stop_timer()
        self._warn_no_results()

    def _restart_timer(self) -> None:
        self._stop_timer()
        if self.rows_read and not self.rows_written and self.holds:
            self.timer = threading.Timer(self.quiet_seconds, self._warn_no_results)
            self.timer.daemon = True
            self.timer.start()

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def _warn_no_results(self) -> None:
        """Warns if there were events and no result."""
        if self.rows_read and not self.rows_written:
            for operator, hold in self.holds.items():
                self._warn(hold, f"no result yet of {operator}")

    def _warn(self, hold: WatermarkHold, observation: str) -> None:
        if (hold.topic, hold.partition) not in self.warned:
            self.warned.add((hold.topic, hold.partition))
            is_followed = hold.topic in self.followed_topics
            describe = _describe_unvouched if is_followed and hold.behind is None else _describe_hold
            _log.warning("%s", describe(hold, observation))


def _describe_unvouched(hold: WatermarkHold, observation: str) -> str:
    return (
        f"{observation}: no run has vouched for {hold.topic} yet, so windows wait; run the job that writes "
        "it, exactly once (docs/how-to/chain-jobs.md names what cannot be vouched for), or "
        "read it with another watermark, such as bounded('5s')"
    )


def _describe_hold(hold: WatermarkHold, observation: str) -> str:
    partition_name = f"{hold.topic}[{hold.partition}]"
    behind = (
        "has brought no event yet"
        if hold.behind is None
        else f"is {durations.format_millis(hold.behind)} behind the others"
    )
    return (
        f"{observation}: {partition_name} {behind}, so windows wait for it; if nobody writes to it "
        f"any more, let it fall idle: mr.read(topic, watermark=watermarks.bounded(delay, idle='10s'))"
    )
