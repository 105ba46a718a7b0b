"""Says when a watermark stands still though events come, which partition holds it back, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable
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
    moved: dict[str, tuple[int | None, float]] = field(default_factory=dict)
    """For each operator, its watermark and when it came there."""
    warned: set[tuple[str, int]] = field(default_factory=set)
    """The partitions that were named, until the watermark moves again."""

    def update(self, batch: Batch) -> None:
        """Takes a batch into account."""
        now = self.clock()
        for operator, watermark in batch.watermarks.items():
            before, since = self.moved.get(operator, (None, now))
            hold = batch.holds.get(operator)
            if watermark != before or hold is None:
                self.moved[operator] = (watermark, now)
                if hold is not None:
                    self.warned.discard((hold.topic, hold.partition))
                continue
            self.moved[operator] = (watermark, since)
            if now - since >= AFTER and (hold.topic, hold.partition) not in self.warned:
                self.warned.add((hold.topic, hold.partition))
                _log.warning("%s", _sentence(operator, hold, now - since))


def _sentence(operator: str, hold: Hold, seconds: float) -> str:
    place = f"{hold.topic}[{hold.partition}]"
    behind = "has brought no event yet" if hold.behind is None else f"is {durations.text(hold.behind)} behind the others"
    return (
        f"the watermark of {operator} has not moved for {seconds:.0f}s: {place} {behind}, so windows wait for it; if nobody writes to it "
        f"any more, let it fall idle: mr.read(topic, watermark=watermarks.bounded(delay, idle='10s'))"
    )
