"""How far partitions have come, from where a batch is committed to where the next one is cut: Spark runs the two in different processes.

A file in the state folder. Nothing is lost with it: a batch that is cut without knowing only reads on everywhere.
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
    """Leaves word for the next batch."""
    stored = [[astuple(watermark) for watermark in of_operator] for of_operator in watermarks.values()]
    write_file(path, json.dumps(stored).encode(), durable=False)


def read_alignment(path: Path, max_ahead: int) -> WatermarkAlignment:
    """What was left, if anything."""
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
