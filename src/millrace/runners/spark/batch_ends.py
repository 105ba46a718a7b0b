"""How far partitions have come, from where a batch is committed to where the next one is cut: Spark runs the two in different processes.

A file in the state folder. Nothing is lost with it: a batch that is cut without knowing only reads on everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

from millrace.engine.progress import Reach
from millrace.runners.batches import Pace


def tell(path: Path, reaches: Mapping[str, Sequence[Reach]]) -> None:
    """Leaves word for the next batch."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps([[astuple(reach) for reach in one] for one in reaches.values()]))
    draft.replace(path)


def told(path: Path, ahead: int) -> Pace:
    """What was left, if anything."""
    try:
        said = json.loads(path.read_text())
        return Pace([[_reach(*reach) for reach in one] for one in said], ahead)
    except (FileNotFoundError, ValueError, TypeError):
        return Pace()


def _reach(topic: str, partition: int, watermark: int | None, idle: bool) -> Reach:
    return Reach(str(topic), int(partition), None if watermark is None else int(watermark), bool(idle))
