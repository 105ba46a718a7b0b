"""The watermarks of partitions after a batch, in a file of the state folder.

The sink knows them, and the source needs them to align partitions (`run.max_ahead`). Spark runs the two in
different processes. The file is a hint: if it is missing or old, the next batch reads from all partitions,
and results are the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

from millrace.engine.progress import PartitionWatermark
from millrace.runners.batches import WatermarkAlignment
from millrace.values.atomic_files import write_file


def write_watermarks(path: Path, watermarks: Mapping[str, Sequence[PartitionWatermark]]) -> None:
    """Replaces the watermarks by those after the batch that was committed."""
    stored = [[astuple(watermark) for watermark in of_operator] for of_operator in watermarks.values()]
    write_file(path, json.dumps(stored).encode(), durable=False)


def read_alignment(path: Path, max_ahead: int) -> WatermarkAlignment:
    """The alignment by the watermarks in the file; without a readable one, no partition waits for another."""
    try:
        data = json.loads(path.read_text())
        return WatermarkAlignment(
            [
                [_parse_watermark(*watermark) for watermark in operator_watermarks]
                for operator_watermarks in data
            ],
            max_ahead,
        )
    except (FileNotFoundError, ValueError, TypeError):
        return WatermarkAlignment()


def _parse_watermark(topic: str, partition: int, watermark: int | None, idle: bool) -> PartitionWatermark:
    return PartitionWatermark(
        str(topic), int(partition), None if watermark is None else int(watermark), bool(idle)
    )
