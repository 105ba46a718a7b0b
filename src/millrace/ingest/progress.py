"""How ingestion shows what it does: one line that is rewritten on a terminal, a plain line now and then elsewhere and where several sources share it."""

from collections import Counter
from datetime import UTC, datetime
from typing import TextIO

from millrace.ingest.clock import Clock, WallClock
from millrace.ingest.pipeline import Counts

_TERMINAL, _PLAIN = 250, 10_000
"""Milliseconds between lines."""
_LIVE = 3_600_000
"""Events that are older than this are of the past, not late."""


class Progress:
    """Give its `update` to `ingest` as `report`, and call `done` at the end."""

    def __init__(self, name: str, out: TextIO, *, alone: bool = True, clock: Clock | None = None) -> None:
        self.name, self.out, self.clock = name, out, clock or WallClock()
        self._terminal = alone and out.isatty()
        self._began = self._last = self.clock.now()
        self._before = 0

    def update(self, counts: Counts) -> None:
        """Shows the counts, unless it has just done so."""
        now = self.clock.now()
        passed = now - self._last
        if passed >= (_TERMINAL if self._terminal else _PLAIN):
            rate = (counts.received - self._before) * 1000 // passed
            self._show(
                f"{_told(counts)}, {rate:,}/s{_latest(counts, now)}{_troubles(counts)}",
                end="" if self._terminal else "\n",
            )
            self._last, self._before = now, counts.received

    def done(self, counts: Counts, *, stopped: bool = False) -> None:
        """The sum of it all, with the reasons of what was rejected."""
        now = self.clock.now()
        seconds = (now - self._began) / 1000
        said = f"{_told(counts)} in {seconds:.1f} s{_latest(counts, now)}{_troubles(counts)}"
        self._show(f"{'stopped' if stopped else 'done'}: {said}", end="\n")
        for what, by in (("passed over", counts.passed), ("rejected", counts.rejected)):
            if by:
                self.out.write(f"  {what}: {_listed(by)}\n")
        self.out.flush()

    def _show(self, text: str, *, end: str) -> None:
        line = f"{self.name}: {text}"
        self.out.write(f"\r\x1b[K{line}{end}" if self._terminal else f"{line}{end}")
        self.out.flush()


def _told(counts: Counts) -> str:
    written, passed, rejected = (by.total() for by in (counts.written, counts.passed, counts.rejected))
    return f"{counts.received:,} messages: {written:,} written, {passed:,} passed over, {rejected:,} rejected"


def _latest(counts: Counts, now: int) -> str:
    """How far the newest event is behind the clock; its time, where that is long ago or ahead."""
    if counts.latest is None:
        return ""
    if 0 <= now - counts.latest < _LIVE:
        return f", lag {(now - counts.latest) / 1000:.1f} s"
    try:
        return f", up to {datetime.fromtimestamp(counts.latest / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return ""


def _troubles(counts: Counts) -> str:
    return f"; {_listed(counts.troubles)}" if counts.troubles else ""


def _listed(by: Counter[str]) -> str:
    return ", ".join(f"{kind} {count:,}" for kind, count in by.most_common())
