"""How far partitions have come, from where a batch is committed to where the next one is cut: Spark runs the two in different processes.

A file in the state folder. Nothing is lost with it: a batch that is cut without knowing only reads on everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

from millrace.engine.progress import Reach
from millrace.runners.feed import Pace


def tell(path: Path, reaches: Mapping[str, Sequence[Reach]]) -> None:
    """Leaves word for the next batch."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps([[astuple(reach) for reach in one] for one in reaches.values()]))
    draft.replace(path)


def told(path: Path, ahead: int) -> Pace:
    """What was left, if anything."""
    try:
        said = [[Reach(*reach) for reach in one] for one in json.loads(path.read_text())]
    except (FileNotFoundError, ValueError, TypeError):
        return Pace()
    return Pace(said, ahead) if all(map(_plain, (reach for one in said for reach in one))) else Pace()


def _plain(reach: Reach) -> bool:
    """Whether it is what was written, as far as types tell."""
    at = reach.watermark
    return isinstance(reach.topic, str) and isinstance(reach.partition, int) and (at is None or isinstance(at, int))
