"""The watermarks of writers: records of the compacted topic `millrace.watermarks`, keyed by topic and writer.

A reader of the log reads the topic once, then what is new. Brokers remove older records of a key after
`KEPT_MS`; until then they are for readers that are behind.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

import msgspec

from millrace.errors import TopicMissing
from millrace.log.control import SkippedRecords
from millrace.log.kafka.topics import COMPACTED_SETTINGS
from millrace.log.kafka.url import WATERMARKS
from millrace.log.writer_watermarks import History, WriterWatermark

if TYPE_CHECKING:
    from millrace.log.contract import Records

KEPT_MS = 3_600_000
"""Milliseconds for which brokers keep older watermarks at least."""
SETTINGS = {**COMPACTED_SETTINGS, "min.compaction.lag.ms": str(KEPT_MS)}
MAX_HISTORY = 10_000
"""How many watermarks of a topic and writer are held in memory."""
_skipped = SkippedRecords()


class WatermarkLog(Protocol):
    """What reading watermarks needs of the log."""

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset still held, by partition."""

    def end_offsets(self, topic: str) -> dict[int, int]:
        """One past the last offset before which every transaction has ended, by partition."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Records:
        """The committed records of that range."""

    def await_settled(self, topic: str) -> None:
        """Returns when transactions have ended that are open now, or after a moment."""


def watermark_key(topic: str, writer: str) -> bytes:
    """The key of a record."""
    return msgspec.json.encode((topic, writer))


class PublishedWatermarks:
    """All watermarks that were read so far."""

    def __init__(self, log: WatermarkLog) -> None:
        self._log, self._position = log, -1
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, deque[WriterWatermark]]] = {}

    def find(self, topic: str) -> History:
        """Those of one topic, by writer, the newest first."""
        with self._lock:
            self._read_new()
            return {writer: [*reversed(history)] for writer, history in self._known.get(topic, {}).items()}

    def _read_new(self) -> None:
        try:
            if self._position < 0:
                self._log.await_settled(WATERMARKS)
                self._position = self._log.start_offsets(WATERMARKS)[0]
            end = self._log.end_offsets(WATERMARKS)[0]
        except TopicMissing:
            return
        if end < self._position:  # the topic was made anew
            self._position = 0
        if end > self._position:
            records = self._log.read(WATERMARKS, 0, self._position, end)
            rows = zip(
                records.offsets.tolist(), records.keys.to_pylist(), records.values.to_pylist(), strict=True
            )
            for offset, key, value in rows:
                self._add(offset, key, value)
            self._position = end

    def _add(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            topic, writer = _parse_key(key)
            if value is None:
                self._known.get(topic, {}).pop(writer, None)
                return
            record = WriterWatermark.from_json(value).check()
        except ValueError as error:
            _skipped.note(WATERMARKS, offset, str(error))
            return
        history = self._known.setdefault(topic, {}).setdefault(writer, deque(maxlen=MAX_HISTORY))
        history.append(record)


def _parse_key(key: bytes | None) -> tuple[str, str]:
    """Topic and writer; `ValueError` completes the sentence "a record that ..."."""
    try:
        return msgspec.json.decode(key or b"", type=tuple[str, str])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"has a key that does not name a topic and a writer: {error}") from error
