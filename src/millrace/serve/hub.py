"""The live hub: every tick, what changed goes to those who look at it.

A tile is encoded once, and its text is shared by all viewers. A viewer has a set of tiles that it has not been sent in their newest state, and
no queue: when it is slow, the set stays as large as its map, and when it is ready again it is sent what holds then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from millrace.serve.tiles import Box, InvalidRequest
from millrace.serve.view_state import Snapshot, ViewState
from millrace.views import View

TICK_SECONDS = 0.5
"""Seconds between two looks at what changed."""
STATUS_SECONDS = 1.0
"""Seconds between two words on how the jobs are."""
MAX_JOINED = 64
"""How many different choices of tiles are kept joined, for viewers who are owed the same."""
SEND_TIMEOUT = 60.0
"""Seconds after which a viewer that takes nothing is let go."""

Send = Callable[[str], Awaitable[None]]

_log = logging.getLogger("millrace.serve")
_json = msgspec.json.Encoder()


class _Subscription(msgspec.Struct, forbid_unknown_fields=True):
    """What a viewer may say."""

    layers: list[str]
    box: list[float]


_decode = msgspec.json.Decoder(_Subscription).decode


@dataclass(eq=False)
class Viewer:
    """One connection: what it looks at, and what it has not been sent yet."""

    send: Send
    layers: tuple[str, ...] = ()
    box: Box | None = None
    due_tiles: dict[str, set[int]] = field(default_factory=dict)
    """By layer: tiles to send. A layer with an empty set has a new time and nothing else."""
    shown_tiles: dict[str, set[int]] = field(default_factory=dict)
    """By layer: tiles that it was last told to be not empty."""
    status_due: bool = False
    awake: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class _Layer:
    """A view as of the last tick, and the texts of its tiles as far as somebody wanted them."""

    view_state: ViewState
    snapshot: Snapshot
    tiles: set[int]
    """Those that are not empty."""
    texts: dict[int, str] = field(default_factory=dict)
    joined_texts: dict[frozenset[int], str] = field(default_factory=dict)
    """The texts of several tiles together, for viewers who are owed the same; since the last change."""
    encoded: int = 0
    """How many times a tile was encoded."""

    @classmethod
    def create(cls, view_state: ViewState) -> "_Layer":
        snapshot, _ = view_state.take_changes()
        return cls(view_state, snapshot, set(snapshot.rows["tile"].unique().to_list()))

    def update(self) -> tuple[set[int], bool]:
        """Goes to the present: the tiles that changed, and whether the time did."""
        before = self.snapshot.time
        self.snapshot, changed = self.view_state.take_changes()
        if changed:
            self.tiles = set(self.snapshot.rows["tile"].unique().to_list())
            self.joined_texts.clear()
            for tile in changed:
                self.texts.pop(tile, None)
        return changed, self.snapshot.time != before

    def encode_missing(self, wanted: set[int]) -> None:
        """Encodes those that nobody has wanted since they changed, all at once."""
        if missing := wanted - self.texts.keys():
            self.texts |= self.view_state.encode(self.snapshot.rows, missing)
            self.encoded += len(missing)

    def join_texts(self, wanted: set[int]) -> str:
        """The texts of several tiles."""
        self.encode_missing(wanted)
        tiles = frozenset(wanted)
        if tiles not in self.joined_texts:
            if len(self.joined_texts) >= MAX_JOINED:
                self.joined_texts.clear()
            self.joined_texts[tiles] = ",".join([self.texts[tile] for tile in sorted(wanted)])
        return self.joined_texts[tiles]


class Hub:
    """All viewers and all layers. Used by one event loop."""

    def __init__(
        self,
        view_states: Sequence[ViewState],
        *,
        jobs: Callable[[int], Sequence[Mapping[str, object]]],
        clock: Callable[[], int],
        tick: float = TICK_SECONDS,
        status_every: float = STATUS_SECONDS,
    ) -> None:
        """`jobs`: how the jobs are at a time of the `clock`."""
        self.viewers: set[Viewer] = set()
        self.ticks = self.sent = 0
        self._layers = {cells.view.name: _Layer.create(cells) for cells in view_states}
        self._jobs, self._clock, self._tick, self._status_every = jobs, clock, tick, status_every
        self._status = ""

    @property
    def encoded(self) -> dict[str, int]:
        """How many times a tile was encoded, by layer."""
        return {name: layer.encoded for name, layer in self._layers.items()}

    def hello_message(self) -> str:
        """What a viewer is told first."""
        views = [layer.view_state.view for layer in self._layers.values()]
        return _encode_text(
            {
                "type": "hello",
                "layers": [_describe_view(view) for view in views],
                "tick_ms": round(self._tick * 1000),
            }
        )

    async def run(self) -> None:
        """Ticks until cancelled."""
        loop = asyncio.get_running_loop()
        last_status = loop.time() - self._status_every
        while True:
            started = loop.time()
            try:
                self.tick()
                if started - last_status >= self._status_every - self._tick / 2:
                    self.update_status()
                    last_status = started
            except Exception:  # noqa: BLE001 - the others still want their map
                _log.exception("a tick failed; the next one comes all the same")
            await asyncio.sleep(max(0.0, started + self._tick - loop.time()))

    def tick(self) -> None:
        """Finds out what changed and wakes those whom it concerns."""
        self.ticks += 1
        for name, layer in self._layers.items():
            changed, has_moved = layer.update()
            if not changed and not has_moved:
                continue
            wanted: set[int] = set()
            for viewer in self.viewers:
                if name in viewer.layers and viewer.box is not None:
                    covered = viewer.box.covered_tiles(changed)
                    wanted |= covered
                    viewer.due_tiles.setdefault(name, set()).update(covered)
                    viewer.awake.set()
            layer.encode_missing(wanted)

    def update_status(self) -> None:
        """Encodes how the jobs are, once for all."""
        if self.viewers:
            now = self._clock()
            problems = {
                name: texts
                for name, layer in self._layers.items()
                if (texts := layer.view_state.omissions.texts)
            }
            self._status = _encode_text(
                {"type": "status", "now": now, "jobs": self._jobs(now), "problems": problems}
            )
        for viewer in self.viewers:
            viewer.status_due = True
            viewer.awake.set()

    def subscribe(self, viewer: Viewer, message: str | bytes) -> None:
        """Replaces what a viewer looks at; `Refused` with the reason leaves it as it was."""
        try:
            subscription = _decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(
                f'{_shorten(message)} is not understood ({error}); send {{"layers": ["name", ...], "box": [west, south, east, north]}}'
            ) from None
        if unknown := [name for name in subscription.layers if name not in self._layers]:
            raise InvalidRequest(
                f"there is no layer {_shorten(unknown[0])}; there are {', '.join(self._layers) or 'none'}"
            )
        viewer.box, viewer.layers = (
            Box.from_degrees(subscription.box),
            tuple(dict.fromkeys(subscription.layers)),
        )
        viewer.due_tiles = {
            name: viewer.box.covered_tiles(self._layers[name].tiles | viewer.shown_tiles.get(name, set()))
            for name in viewer.layers
        }
        viewer.awake.set()

    async def serve(self, viewer: Viewer) -> None:
        """Sends a viewer what is due, whenever something is, until it takes no more for too long."""
        self.viewers.add(viewer)
        try:
            while True:
                await viewer.awake.wait()
                viewer.awake.clear()
                for message in self._due_messages(viewer):
                    async with asyncio.timeout(SEND_TIMEOUT):
                        await viewer.send(message)
                    self.sent += 1
        except TimeoutError:
            _log.info("a viewer that took nothing for %.0f s was let go", SEND_TIMEOUT)
        finally:
            self.viewers.discard(viewer)

    def _due_messages(self, viewer: Viewer) -> Iterable[str]:
        """Each made when the one before it is on its way, of what holds then."""
        while viewer.due_tiles:
            name = next(iter(viewer.due_tiles))
            yield self._tick_message(viewer, name, viewer.due_tiles.pop(name))
        if viewer.status_due:
            viewer.status_due = False
            yield self._status

    def _tick_message(self, viewer: Viewer, name: str, wanted: set[int]) -> str:
        layer = self._layers[name]
        shown = viewer.shown_tiles.setdefault(name, set())
        shown -= wanted
        shown |= wanted & layer.tiles
        head = _encode_text(
            {"type": "tick", "layer": name, "time": layer.snapshot.time, "now": self._clock()}
        )
        return f'{head[:-1]},"tiles":[{layer.join_texts(wanted)}]}}'


def _describe_view(view: View) -> dict[str, object]:
    """All that a page needs to know in order to show a view that it has never heard of."""
    labels = {
        "noun": view.noun or view.title.lower(),
        "legend": view.legend or view.title,
        "unit": view.unit,
        "values": view.values,
    }
    return {
        "name": view.name,
        "title": view.title,
        "topic": view.topic.name,
        "kind": view.kind,
        "window_ms": view.window_ms,
        "every_ms": view.every_ms,
        **labels,
    }


def error_message(reason: str) -> str:
    """What a viewer is told of a message that cannot be."""
    return _encode_text({"type": "error", "error": reason})


def _encode_text(message: object) -> str:
    return _json.encode(message).decode()


def _shorten(message: str | bytes) -> str:
    text = message if isinstance(message, str) else message.decode(errors="replace")
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
