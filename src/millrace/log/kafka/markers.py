"""What each writer has committed: the last record of its name in the compacted topic `millrace.markers`.

A marker is written in the same transaction as the records it stands for. Offsets of consumer groups would serve, too, but they expire.
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
"""How many offsets are looked through at first, from the end; then ten times as many, and so on."""
_skipped = SkippedRecords()


class CommitMarker(ControlRecord, frozen=True):
    """A record of the topic; its key is the writer's name."""

    marker: int
    """The number of what was committed last, -1 if nothing was."""
    epoch: int
    """How often the name was taken over."""
    owner: str
    """Who took it over last."""


def last_marker(name: str, begin: int, end: int, read: Callable[[int, int], Records]) -> CommitMarker | None:
    """The last marker of that name in `[begin, end)`; records that are none are passed over."""
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
    """Returns when every transaction that had begun before `upto` has ended.

    A marker may lie behind the open transaction of another writer, where it is not to be seen: believing that there is none would write
    results twice.
    """
    deadline = time.monotonic() + wait_ms / 1000
    while settled() < end:
        if time.monotonic() > deadline:
            raise LogUnreachable(
                f"a transaction of another writer has been open for {wait_ms // 1000} s, so that nobody can tell what was committed before; try again later"
            )
        time.sleep(0.01)
