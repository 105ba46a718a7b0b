"""Progress lines of ingestion: one rewritten line on a terminal; plain lines in a file or for several
sources.
"""

from collections import Counter
from datetime import UTC, datetime
from typing import TextIO

from millrace.ingest.clock import Clock, WallClock
from millrace.ingest.pipeline import IngestCounts

_TERMINAL_INTERVAL, _PLAIN_INTERVAL = 250, 10_000
"""Milliseconds between two plain lines."""
_MAX_LIVE_LAG = 3_600_000
"""Milliseconds; for older events, their time is shown and not their lag."""


class IngestProgress:
    """Pass `update` to `ingest` as `report`, and call `finish` at the end."""

    def __init__(self, name: str, out: TextIO, *, alone: bool = True, clock: Clock | None = None) -> None:
        self.name, self.out, self.clock = name, out, clock or WallClock()
        self._is_terminal = alone and out.isatty()
        self._started_at = self._shown_at = self.clock.now()
        self._shown_received = 0

    def update(self, counts: IngestCounts) -> None:
        """Shows the counts, unless a line is not due yet."""
        now = self.clock.now()
        elapsed = now - self._shown_at
        if elapsed >= (_TERMINAL_INTERVAL if self._is_terminal else _PLAIN_INTERVAL):
            rate = (counts.received - self._shown_received) * 1000 // elapsed
            self._show(
                f"{_format_totals(counts)}, "
                f"{rate:,}/s{_format_lag(counts, now)}{_format_recovered_errors(counts)}",
                end="" if self._is_terminal else "\n",
            )
            self._shown_at, self._shown_received = now, counts.received

    def finish(self, counts: IngestCounts, *, stopped: bool = False) -> None:
        """Shows the totals, with the reasons of rejects."""
        now = self.clock.now()
        seconds = (now - self._started_at) / 1000
        details = _format_lag(counts, now) + _format_recovered_errors(counts)
        summary = f"{_format_totals(counts)} in {seconds:.1f} s{details}"
        self._show(f"{'stopped' if stopped else 'done'}: {summary}", end="\n")
        for label, counter in (("passed over", counts.skipped), ("rejected", counts.rejected)):
            if counter:
                self.out.write(f"  {label}: {_format_counts(counter)}\n")
        if counts.first_reject:
            self.out.write(f"  the first reject: {counts.first_reject}\n")
        for column, early in counts.early_times.items():
            self.out.write(f"  look at {early.describe(column)}\n")
        self.out.flush()

    def _show(self, text: str, *, end: str) -> None:
        line = f"{self.name}: {text}"
        self.out.write(f"\r\x1b[K{line}{end}" if self._is_terminal else f"{line}{end}")
        self.out.flush()


def _format_totals(counts: IngestCounts) -> str:
    written, skipped, rejected = (
        counter.total() for counter in (counts.written, counts.skipped, counts.rejected)
    )
    return (
        f"{counts.received:,} messages: {written:,} written, {skipped:,} passed over, {rejected:,} rejected"
    )


def _format_lag(counts: IngestCounts, now: int) -> str:
    """The lag of the latest event behind the clock, or its time if it is long ago or in the future."""
    if counts.max_event_time is None:
        return ""
    if 0 <= now - counts.max_event_time < _MAX_LIVE_LAG:
        return f", lag {(now - counts.max_event_time) / 1000:.1f} s"
    try:
        return f", up to {datetime.fromtimestamp(counts.max_event_time / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return ""


def _format_recovered_errors(counts: IngestCounts) -> str:
    return f"; {_format_counts(counts.recovered_errors)}" if counts.recovered_errors else ""


def _format_counts(counter: Counter[str]) -> str:
    return ", ".join(f"{kind} {count:,}" for kind, count in counter.most_common())
