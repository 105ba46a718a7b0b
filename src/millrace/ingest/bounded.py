"""A recording taken whole, as frames, without a log."""

from pathlib import Path

import polars as pl

from millrace import graph
from millrace.ingest import registry
from millrace.ingest.pipeline import LIMIT
from millrace.ingest.recording import Recording


def recorded(path: Path, *, processor: str) -> dict[str, pl.DataFrame]:
    """The events of a recording by topic, in the order in which they came; what the processor rejects is left out."""
    understood = registry.processor(processor)
    frames = {topic.name: [pl.Schema({**topic.schema, **graph.TIMES}).to_frame()] for topic in understood.topics}
    with Recording(path, speed="max") as recording:
        while (batch := recording.poll(limit=LIMIT, wait=0)) is not None:
            for topic, rows in understood.process_many(batch).rows:
                frames[topic.name].append(rows)
    return {name: pl.concat(parts) for name, parts in frames.items()}
