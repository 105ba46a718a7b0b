"""What is kept of a key, as bytes and back: msgpack,
which holds plain values and nothing that could be run.
"""

from __future__ import annotations

import operator
from typing import Any

from millrace.state import NO_EXPIRY, KeyState
from millrace.values import storable

VERSION = 1
_FIRST = operator.itemgetter(0)


def dump(state: KeyState) -> bytes:
    """As bytes, without what is too old."""
    return storable.encode(
        [
            VERSION,
            {name: _encode_cell(cell) for name, cell in state.values.items()},
            state.timers,
            state.clock_timers,
            state.last_time,
        ]
    )


def load(data: bytes) -> KeyState:
    """What `dump` wrote."""
    version, cells, timers, alarms, at = storable.decode(data)
    if version != VERSION:
        raise ValueError(
            f"cells of version {version}, but this is version {VERSION}; go on with the version that wrote "
            "it, or compute results anew (millrace backfill)"
        )
    return KeyState({name: _decode_cell(*cell) for name, cell in cells.items()}, timers, alarms, at)


def trim(state: KeyState) -> None:
    """Forgets what is over at the time that the key has come to."""
    for name, cell in list(state.values.items()):
        if isinstance(cell, tuple):
            remaining: Any = cell if state.last_time < cell[1] else None
        elif isinstance(cell, list):
            remaining = [pair for pair in cell if state.last_time < pair[1]]
        else:
            remaining = {key: pair for key, pair in cell.items() if state.last_time < pair[1]}
        if remaining:
            state.values[name] = remaining
        else:
            del state.values[name]


def expires_at(state: KeyState) -> int:
    """When nothing is left of it, by the watermark."""
    if state.timers or state.clock_timers:
        return NO_EXPIRY
    expiries = [end for cell in state.values.values() for end in _expiries(cell)]
    return max(expiries, default=state.last_time + 1)


def _expiries(cell: Any) -> list[int]:
    if isinstance(cell, tuple):
        return [cell[1]]
    return [end for _, end in (cell if isinstance(cell, list) else cell.values())]


def _encode_cell(cell: Any) -> tuple[str, Any]:
    """Its kind, and what is in it; entries as pairs, as their keys may be of any plain type."""
    if isinstance(cell, tuple):
        return "v", storable.pack_row(cell)
    kind, entries = ("i", cell) if isinstance(cell, list) else ("e", list(cell.items()))
    values = cell if isinstance(cell, list) else [*cell.values()]
    is_plain = storable.are_plain(map(_FIRST, values)) and (kind == "i" or storable.are_plain(cell))
    return kind, entries if is_plain else storable.pack(entries)


def _decode_cell(kind: str, cell: Any) -> Any:
    if kind == "v":
        return tuple(cell)
    if kind == "i":
        return [tuple(pair) for pair in cell]
    return {key: tuple(pair) for key, pair in cell}
