"""What a slow viewer gets: each tile once, in its newest state. A viewer has a set of pending tiles and no
queue of messages.

Every tick adds the tiles that changed to the set of each viewer that looks at them. A tile that is in the set
already is not added twice. When the connection takes data again, the set becomes one message per layer, made
of the state at that moment. So a viewer costs no more memory than the tiles of its map, however long it
stalls, and its first message afterwards is up to date.

Example: tiles a, b and c, and a viewer whose connection takes nothing from 0.5 s to 3 s.

    time   changed   pending   sent
    0.0 s  a b c     -         a b c
    0.5 s  a         a         -       the connection is full
    1.0 s  a b       a b       -
    1.5 s  a         a b       -       a changed three times and is pending once
    3.0 s  -         -         a b     as they are at 3 s; the states of 0.5 s and 1 s are never sent

A viewer that takes nothing for `SEND_TIMEOUT` is disconnected.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from millrace.serve.tiles import Box

SEND_TIMEOUT = 60.0
"""Seconds after which a viewer that takes nothing is disconnected."""


@dataclass(eq=False)
class Viewer:
    """One connection: what it looks at, and what it has not been sent yet."""

    send_text: Callable[[str], Awaitable[None]]
    layers: tuple[str, ...] = ()
    box: Box | None = None
    """The part of the map that it looks at; None until it subscribes."""
    pending_tiles: dict[str, set[int]] = field(default_factory=dict)
    """By layer: tiles to send. A layer with an empty set has a new time and no new tiles."""
    shown_tiles: dict[str, set[int]] = field(default_factory=dict)
    """By layer: the tiles that were not empty when they were last sent. When the viewer looks elsewhere, they
    may have to be emptied."""
    is_status_pending: bool = False
    has_pending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while there may be something to send."""

    def look_at(self, box: Box, tiles: Mapping[str, set[int]]) -> None:
        """Replaces what the viewer looks at. `tiles`: by layer, those that are not empty; all of them inside
        the box become pending.
        """
        self.box, self.layers = box, tuple(tiles)
        self.pending_tiles = {
            layer: box.covered_tiles(filled | self.shown_tiles.get(layer, set()))
            for layer, filled in tiles.items()
        }
        self.has_pending.set()

    def add_changes(self, layer: str, changed: set[int]) -> set[int]:
        """Makes tiles pending that changed, as far as the viewer looks at them; returns these."""
        if self.box is None or layer not in self.layers:
            return set()
        covered = self.box.covered_tiles(changed)
        self.pending_tiles.setdefault(layer, set()).update(covered)
        self.has_pending.set()
        return covered

    def add_status(self) -> None:
        """Makes the status of the jobs pending; only the newest one is ever sent."""
        self.is_status_pending = True
        self.has_pending.set()

    def take_tiles(self) -> tuple[str, set[int]]:
        """Removes one layer from those that are pending, with its tiles."""
        layer = next(iter(self.pending_tiles))
        return layer, self.pending_tiles.pop(layer)

    def note_shown(self, layer: str, tiles: set[int], *, filled: set[int]) -> None:
        """Notes that the viewer is sent these tiles, of which only the `filled` ones are not empty."""
        self.shown_tiles[layer] = (self.shown_tiles.get(layer, set()) - tiles) | (tiles & filled)

    def take_status(self) -> bool:
        """Whether the status was pending; it is not any more."""
        was_pending, self.is_status_pending = self.is_status_pending, False
        return was_pending

    async def send(self, message: str) -> None:
        """Returns when the connection has taken the message. `TimeoutError` after `SEND_TIMEOUT`."""
        async with asyncio.timeout(SEND_TIMEOUT):
            await self.send_text(message)
