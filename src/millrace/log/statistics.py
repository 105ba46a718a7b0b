"""How much a log holds, how evenly, and how far runs have come in it."""

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.errors import OffsetGone, TopicMissing
from millrace.log.contract import Log
from millrace.log.status import Status, read_status, run_of

_PIECE = 100_000
"""The most offsets that are read at once."""
_STATUSES = 50
"""How many offsets are looked back for a run's last status; an aborted transaction may lie behind it."""


@dataclass(frozen=True)
class Lag:
    """How far a run is behind in one of the topics that it reads."""

    run: str
    topic: str
    behind: int
    """Offsets still to be read; a few more than events, where offsets have gaps."""
    said: int
    """When the run last said how far it is, in milliseconds since the epoch."""


def count(log: Log, topic: str) -> list[int]:
    """The records of each partition, counted one by one: offsets may have gaps. Those that come meanwhile are left out."""
    begins, ends = log.begins(topic), log.ends(topic)
    return [
        sum(
            len(log.read(topic, partition, start, min(end, start + _PIECE)))
            for start in range(begins[partition], end, _PIECE)
        )
        for partition, end in sorted(ends.items())
    ]


def skew(sizes: Sequence[int]) -> float | None:
    """How many times as much as on average the fullest partition holds; 1 is even, None: there is nothing."""
    return max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else None


def lags(log: Log, run: str | None = None) -> list[Lag]:
    """How far runs are behind now, or one of them; those that have not said how they are within the hour are left out."""
    found = []
    for name in log.list():
        who = run_of(name)
        status = _last(log, name) if who is not None and run in (None, who) else None
        if who is None or status is None:
            continue
        for topic, reached in status.reached.items():
            try:
                found.append(Lag(who, topic, max(0, sum(log.ends(topic).values()) - reached), status.at))
            except TopicMissing:
                continue
    return found


def _last(log: Log, topic: str) -> Status | None:
    begin, end = log.begins(topic)[0], log.ends(topic)[0]
    try:
        statuses = read_status(log.read(topic, 0, max(begin, end - _STATUSES), end))
    except OffsetGone:  # removed this very moment
        return None
    return statuses[-1] if statuses else None
