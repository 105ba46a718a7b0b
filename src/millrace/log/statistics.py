"""How much a log holds, how evenly it is spread, and how far runs have read."""

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.errors import OffsetGone, TopicMissing
from millrace.log.contract import Log
from millrace.log.status import Status, parse_statuses, run_of_topic

_OFFSETS_PER_READ = 100_000
"""The most offsets that are read at once."""
_STATUS_OFFSETS = 50
"""How many offsets from the end are read to find a run's last status, behind aborted transactions."""


@dataclass(frozen=True)
class ReaderLag:
    """How far a run is behind in one of the topics that it reads."""

    run: str
    topic: str
    behind: int
    """Offsets still to be read; a few more than events, where offsets have gaps."""
    reported_at: int
    """When the run last reported its status, in milliseconds since the epoch."""


def count_records(log: Log, topic: str) -> list[int]:
    """The records of each partition, counted by reading them, without those appended meanwhile."""
    begins, ends = log.start_offsets(topic), log.end_offsets(topic)
    return [
        sum(
            len(log.read(topic, partition, start, min(end, start + _OFFSETS_PER_READ)))
            for start in range(begins[partition], end, _OFFSETS_PER_READ)
        )
        for partition, end in sorted(ends.items())
    ]


def partition_skew(sizes: Sequence[int]) -> float | None:
    """How many times the average the fullest partition holds; 1 is even, None: all are empty."""
    return max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else None


def read_lags(log: Log, run: str | None = None) -> list[ReaderLag]:
    """How far runs are behind now, or one of them; runs without a status of the last hour are left out."""
    result = []
    for name in log.list_topics():
        status_run = run_of_topic(name)
        status = _last_status(log, name) if status_run is not None and run in (None, status_run) else None
        if status_run is None or status is None:
            continue
        for topic, reached in status.reached.items():
            try:
                result.append(
                    ReaderLag(
                        status_run, topic, max(0, sum(log.end_offsets(topic).values()) - reached), status.at
                    )
                )
            except TopicMissing:
                continue
    return result


def _last_status(log: Log, topic: str) -> Status | None:
    begin, end = log.start_offsets(topic)[0], log.end_offsets(topic)[0]
    try:
        statuses = parse_statuses(log.read(topic, 0, max(begin, end - _STATUS_OFFSETS), end))
    except OffsetGone:  # removed this very moment
        return None
    return statuses[-1] if statuses else None
