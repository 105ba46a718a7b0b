"""Says when a watermark stands still though events come, which partition holds it back, and what to do.

A run that has read events and written nothing says so too: when it ends, and when nothing has come for a while. Whoever tries a first program
with a few events sees no result otherwise, and no reason.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millrace import durations

if TYPE_CHECKING:
    from millrace.engine.progress import Hold
    from millrace.runners import Batch

AFTER = 30.0
"""Seconds without movement after which a warning is due."""

_log = logging.getLogger("millrace.run")


@dataclass
class Standstill:
    """Watches the watermark of each operator. Batches only come while events do, so a watermark that does not move is held back."""

    clock: Callable[[], float]
    quiet: float = AFTER
    """Seconds without a batch after which a run that has written nothing says why."""
    moved: dict[str, tuple[int | None, float]] = field(default_factory=dict)
    """For each operator, its watermark and when it came there."""
    warned: set[tuple[str, int]] = field(default_factory=set)
    """The partitions that were named, until the watermark moves again."""
    read: int = 0
    written: int = 0
    holds: Mapping[str, Hold] = field(default_factory=dict)
    timer: threading.Timer | None = None

    def update(self, batch: Batch) -> None:
        """Takes a batch into account."""
        now = self.clock()
        self.read += batch.counts.get("read", 0)
        self.written += batch.counts.get("written", 0)
        self.holds = batch.holds
        for operator, watermark in batch.watermarks.items():
            before, since = self.moved.get(operator, (None, now))
            hold = batch.holds.get(operator)
            if watermark != before or hold is None:
                self.moved[operator] = (watermark, now)
                if hold is not None:
                    self.warned.discard((hold.topic, hold.partition))
                continue
            self.moved[operator] = (watermark, since)
            if now - since >= AFTER:
                self._warn(hold, f"the watermark of {operator} has not moved for {now - since:.0f}s")
        self._restart()

    def close(self) -> None:
        """At the end of the run."""
        self._stop()
        self._say_nothing_came()

    def _restart(self) -> None:
        self._stop()
        if self.read and not self.written and self.holds:
            self.timer = threading.Timer(self.quiet, self._say_nothing_came)
            self.timer.daemon = True
            self.timer.start()

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def _say_nothing_came(self) -> None:
        """Where events came and no result did."""
        if self.read and not self.written:
            for operator, hold in self.holds.items():
                self._warn(hold, f"no result yet of {operator}")

    def _warn(self, hold: Hold, what: str) -> None:
        if (hold.topic, hold.partition) not in self.warned:
            self.warned.add((hold.topic, hold.partition))
            _log.warning("%s", _sentence(hold, what))


def _sentence(hold: Hold, what: str) -> str:
    place = f"{hold.topic}[{hold.partition}]"
    behind = (
        "has brought no event yet"
        if hold.behind is None
        else f"is {durations.text(hold.behind)} behind the others"
    )
    return (
        f"{what}: {place} {behind}, so windows wait for it; if nobody writes to it "
        f"any more, let it fall idle: mr.read(topic, watermark=watermarks.bounded(delay, idle='10s'))"
    )
