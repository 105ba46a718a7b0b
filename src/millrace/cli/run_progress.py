"""The progress lines of `millrace run`: events read, their rate, and how far the watermark has come."""

import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from millrace import durations

if TYPE_CHECKING:
    from millrace.engine.progress import WatermarkHold
    from millrace.runners import BatchReport

_log = logging.getLogger("millrace.run")


class RunProgress:
    """Sums up batches, and logs a line every `INTERVAL` seconds."""

    INTERVAL = 10.0

    def __init__(self) -> None:
        self.events = self.batches = self.reported_events = self.reported_batches = 0
        self.watermark: int | None = None
        self.hold: WatermarkHold | None = None
        self.stopped = self.unanswered = 0
        self.reported_at = time.monotonic()

    def update(self, batch: "BatchReport") -> None:
        """Adds a batch, and logs a line if one is due."""
        self.events += batch.counts.get("read", 0)
        self.batches += 1
        known = [watermark for watermark in batch.watermarks.values() if watermark is not None]
        self.watermark = min(known) if known else self.watermark
        self.hold = _slowest_hold(batch)
        self.stopped = len(batch.quarantined)
        self.unanswered += sum(
            n for name, n in batch.counts.items() if name.startswith("lookup/") and name.endswith("/failed")
        )
        if time.monotonic() - self.reported_at >= self.INTERVAL:
            self.report()

    def report(self) -> None:
        """Logs the sums so far, and the rate since the last line."""
        elapsed = max(time.monotonic() - self.reported_at, 1e-3)
        rate = (self.events - self.reported_events) / elapsed
        _log.info(
            "%s events in %s batches, %s events/s, watermark %s",
            f"{self.events:,}",
            f"{self.batches:,}",
            f"{rate:,.0f}",
            self._describe_watermark(),
        )
        self.reported_at = time.monotonic()
        self.reported_events, self.reported_batches = self.events, self.batches

    def _describe_watermark(self) -> str:
        """The watermark with what holds it back, jobs under quarantine, and failed lookups."""
        text = "none yet" if self.watermark is None else _format_time(self.watermark)
        text += _describe_hold(self.hold)
        if self.stopped:
            text += f"; {self.stopped} job{'s' * (self.stopped > 1)} under quarantine"
        if self.unanswered:
            text += f"; {self.unanswered:,} keys could not be looked up"
        return text

    def close(self) -> None:
        """Logs the last line, unless nothing has changed since the one before."""
        if not self.batches or self.reported_batches != self.batches:
            self.report()


def _slowest_hold(batch: "BatchReport") -> "WatermarkHold | None":
    """The hold of the lowest watermark: a partition without any event comes first, then the operator furthest
    behind.
    """
    known = batch.watermarks
    return min(
        batch.holds.items(),
        key=lambda item: (item[1].behind is not None, known.get(item[0]) or 0, item[0]),
        default=(None, None),
    )[1]


def _describe_hold(hold: "WatermarkHold | None") -> str:
    if hold is None:
        return ""
    partition = f"{hold.topic}[{hold.partition}]"
    if hold.behind is None:
        return f", held back by {partition}, which has no event yet"
    return f", held back {durations.format_millis(hold.behind)} by {partition}"


def _format_time(at: int) -> str:
    if at >= durations.END_OF_STREAM:
        return "at the end of the stream"
    try:
        return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{at} ms"
