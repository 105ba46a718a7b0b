"""What is kept of a key, as bytes and back: msgpack, which holds plain values and nothing that could be run."""

from __future__ import annotations

from typing import Any

import msgspec

from millrace.processors import NEVER, Kept

VERSION = 1


def dump(kept: Kept) -> bytes:
    """As bytes, without what is too old."""
    return msgspec.msgpack.encode(
        [
            VERSION,
            {name: _coded(cell) for name, cell in kept.cells.items()},
            kept.timers,
            kept.alarms,
            kept.at,
        ]
    )


def load(data: bytes) -> Kept:
    """What `dump` wrote."""
    version, cells, timers, alarms, at = msgspec.msgpack.decode(data)
    if version != VERSION:
        raise ValueError(
            f"cells of version {version}, but this is version {VERSION}; go on with the version that wrote it, or compute results anew (millrace backfill)"
        )
    return Kept({name: _decoded(*cell) for name, cell in cells.items()}, timers, alarms, at)


def trim(kept: Kept) -> None:
    """Forgets what is over at the time that the key has come to."""
    for name, cell in list(kept.cells.items()):
        if isinstance(cell, tuple):
            left: Any = cell if kept.at < cell[1] else None
        elif isinstance(cell, list):
            left = [pair for pair in cell if kept.at < pair[1]]
        else:
            left = {key: pair for key, pair in cell.items() if kept.at < pair[1]}
        if left:
            kept.cells[name] = left
        else:
            del kept.cells[name]


def until(kept: Kept) -> int:
    """When nothing is left of it, by the watermark."""
    if kept.timers or kept.alarms:
        return NEVER
    ends = [end for cell in kept.cells.values() for end in _ends(cell)]
    return max(ends, default=kept.at + 1)


def _ends(cell: Any) -> list[int]:
    if isinstance(cell, tuple):
        return [cell[1]]
    return [end for _, end in (cell if isinstance(cell, list) else cell.values())]


def _coded(cell: Any) -> tuple[str, Any]:
    """Its kind, and what is in it; entries as pairs, as their keys may be of any plain type."""
    if isinstance(cell, tuple):
        return "v", cell
    return ("i", cell) if isinstance(cell, list) else ("e", list(cell.items()))


def _decoded(kind: str, cell: Any) -> Any:
    if kind == "v":
        return tuple(cell)
    if kind == "i":
        return [tuple(pair) for pair in cell]
    return {key: tuple(pair) for key, pair in cell}
