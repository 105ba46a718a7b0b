"""A recording taken whole, as frames, without a log."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from millrace import graph
from millrace.ingest import registry
from millrace.ingest.connectors.recording import Recording
from millrace.ingest.isolation import process_apart
from millrace.ingest.pipeline import LIMIT

_log = logging.getLogger("millrace.replay")


@dataclass(frozen=True, eq=False)
class Recorded:
    """The events of a recording, and how many of its messages became none."""

    frames: Mapping[str, pl.DataFrame]
    """By topic, in the order in which they came."""
    received: int
    rejected: Counter[str]
    """Messages that could not be understood, by reason."""
    passed: Counter[str]
    """Messages of no interest, by kind."""
    details: Mapping[str, str]
    """Of each reason, what exactly was wrong with the first, and where."""

    def left_out(self) -> str | None:
        """How many messages became no event and why, with one that most of them are like; None: every message became one."""
        kinds = (self.rejected + self.passed).most_common()
        if not kinds:
            return None
        listed = ", ".join(f"{kind} {count:,}" for kind, count in kinds)
        said = f"{sum(count for _, count in kinds):,} of {self.received:,} records became no event: {listed}"
        example = next((f"{kind}: {self.details[kind]}" for kind, _ in kinds if kind in self.details), None)
        return f"{said}; for example {example}" if example else said


def read_recording(path: Path, *, processor: str) -> Recorded:
    """All of a recording. One bad message does not stop the others: it is counted."""
    understood = registry.processor(processor)
    frames = {
        topic.name: [pl.Schema({**topic.schema, **graph.TIMES}).to_frame()] for topic in understood.topics
    }
    received, rejected, passed = 0, Counter[str](), Counter[str]()
    details: dict[str, str] = {}
    with Recording(path, speed="max") as recording:
        while (batch := recording.poll(limit=LIMIT, wait=0)) is not None:
            done = process_apart(understood, batch)
            received += len(batch) + len(batch.rejects)
            for reject in (*batch.rejects, *done.rejects):
                rejected[reject.reason] += 1
                details.setdefault(reject.reason, f"{reject.detail} ({reject.raw.origin})")
            passed.update(done.passed)
            for topic, rows in done.rows:
                frames[topic.name].append(rows)
    return Recorded(
        {name: pl.concat(parts) for name, parts in frames.items()}, received, rejected, passed, details
    )


def recorded(path: Path, *, processor: str) -> dict[str, pl.DataFrame]:
    """The events of a recording by topic. What became no event is left out, and a warning says how many records that were."""
    found = read_recording(path, processor=processor)
    if said := found.left_out():
        _log.warning("%s: %s", path, said)
    return dict(found.frames)
