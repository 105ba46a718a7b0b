"""Reads a whole recording into frames, without a log."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from millrace import graph
from millrace.ingest import registry
from millrace.ingest.connectors.recording import Recording
from millrace.ingest.isolation import process_isolated
from millrace.ingest.pipeline import BATCH_LIMIT

_log = logging.getLogger("millrace.replay")


@dataclass(frozen=True, eq=False)
class RecordedEvents:
    """The events of a recording, and counts of the messages that are not events."""

    frames: Mapping[str, pl.DataFrame]
    """By topic, in order of arrival."""
    received: int
    rejected: Counter[str]
    """Counts of rejected messages, by reason."""
    skipped: Counter[str]
    """Counts of skipped messages, by kind."""
    details: Mapping[str, str]
    """By reason, the details of the first rejected message and its place."""

    def describe_skipped(self) -> str | None:
        """A sentence on messages that are not events, with an example of the most frequent reason; None if
        there are none.
        """
        kinds = (self.rejected + self.skipped).most_common()
        if not kinds:
            return None
        counts = ", ".join(f"{kind} {count:,}" for kind, count in kinds)
        summary = (
            f"{sum(count for _, count in kinds):,} of {self.received:,} records became no event: {counts}"
        )
        example = next((f"{kind}: {self.details[kind]}" for kind, _ in kinds if kind in self.details), None)
        return f"{summary}; for example {example}" if example else summary


def read_recording(path: Path, *, processor: str) -> RecordedEvents:
    """Reads a recording. A bad message is counted and does not stop the others."""
    message_processor = registry.processor(processor)
    frames = {
        topic.name: [pl.Schema({**topic.schema, **graph.TIME_COLUMNS}).to_frame()]
        for topic in message_processor.topics
    }
    received, rejected, skipped = 0, Counter[str](), Counter[str]()
    details: dict[str, str] = {}
    with Recording(path, speed="max") as recording:
        while (batch := recording.poll(limit=BATCH_LIMIT, wait=0)) is not None:
            processed = process_isolated(message_processor, batch)
            received += len(batch) + len(batch.rejects)
            for reject in (*batch.rejects, *processed.rejects):
                rejected[reject.reason] += 1
                details.setdefault(reject.reason, f"{reject.detail} ({reject.raw.origin})")
            skipped.update(processed.skipped)
            for topic, rows in processed.rows:
                frames[topic.name].append(rows)
    return RecordedEvents(
        {name: pl.concat(parts) for name, parts in frames.items()}, received, rejected, skipped, details
    )


def read_frames(path: Path, *, processor: str) -> dict[str, pl.DataFrame]:
    """The events of a recording by topic. A warning says how many records are not events."""
    events = read_recording(path, processor=processor)
    if summary := events.describe_skipped():
        _log.warning("%s: %s", path, summary)
    return dict(events.frames)
