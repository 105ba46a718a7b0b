"""Markers: what each writer has committed last, as records of the compacted topic `millrace.markers`.

A marker is written in the same transaction as the records it stands for, so both are there or neither. The
offsets of a consumer group could be committed in a transaction, too, but they expire.
"""

import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from millrace.errors import LogUnreachable
from millrace.log.contract import Records
from millrace.log.control import ControlRecord, SkippedRecords
from millrace.log.kafka.url import MARKERS

_FIRST_SPAN = 200
"""How many offsets are read at first, from the end of the topic; then ten times as many, and so on."""
_skipped = SkippedRecords()


class CommitMarker(ControlRecord, frozen=True):
    """A record of the topic; its key is the writer's name."""

    marker: int
    """The number of the last commit, -1 before the first."""
    epoch: int
    """How often the name was taken over. A writer that finds a higher epoch than its own is fenced."""
    owner: str
    """A random id of the writer that holds the name."""


def last_marker(name: str, begin: int, end: int, read: Callable[[int, int], Records]) -> CommitMarker | None:
    """The last marker of that name in `[begin, end)`; records that are not markers are skipped."""
    key, span = pa.scalar(name.encode(), pa.binary()), _FIRST_SPAN
    while end > begin:
        start = max(begin, end - span)
        records = read(start, end)
        for value in reversed(records.values.filter(pc.equal(records.keys, key)).to_pylist()):
            try:
                return CommitMarker.from_json(value)
            except ValueError as error:
                _skipped.note(MARKERS, None, f"{error}, of writer {name!r}")
        end, span = start, span * 10
    return None


def await_settled(end: int, settled: Callable[[], int], *, wait_ms: int) -> None:
    """Returns when every transaction that had begun before offset `end` has ended.

    A marker may lie behind the open transaction of another writer, where readers do not see it (worked
    example: `KafkaLog.marker`). `settled` returns the offset before which all transactions have ended.
    """
    deadline = time.monotonic() + wait_ms / 1000
    while settled() < end:
        if time.monotonic() > deadline:
            raise LogUnreachable(
                f"a transaction of another writer has been open for {wait_ms // 1000} s, so it is not known "
                "what was committed last; try again later"
            )
        time.sleep(0.01)
