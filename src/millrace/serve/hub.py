"""The live hub: every tick, it finds the tiles that changed and sends them to the viewers that look at them.

A tile is encoded once after each change, and all viewers share its text. Viewers that do not keep up:
`slow_viewers.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from millrace.serve.slow_viewers import SEND_TIMEOUT, Viewer
from millrace.serve.tiles import Box, InvalidRequest
from millrace.serve.view_state import Snapshot, ViewState
from millrace.views import View

TICK_SECONDS = 0.5
"""Seconds between two searches for changes."""
STATUS_SECONDS = 1.0
"""Seconds between two messages about the state of the jobs."""
MAX_JOINED = 64
"""For how many different sets of tiles the joined text is cached. Viewers of the same part of the map share
one."""

_log = logging.getLogger("millrace.serve")
_json = msgspec.json.Encoder()


class _Subscription(msgspec.Struct, forbid_unknown_fields=True):
    """The one message that viewers send."""

    layers: list[str]
    box: list[float]


_decode = msgspec.json.Decoder(_Subscription).decode


@dataclass(eq=False)
class _Layer:
    """A view as of the last tick, and the texts of those tiles that a viewer wanted."""

    view_state: ViewState
    snapshot: Snapshot
    tiles: set[int]
    """The tiles that are not empty."""
    texts: dict[int, str] = field(default_factory=dict)
    joined_texts: dict[frozenset[int], str] = field(default_factory=dict)
    """The joined texts of sets of tiles, since the last change."""
    encoded: int = 0
    """How many times a tile was encoded."""

    @classmethod
    def create(cls, view_state: ViewState) -> "_Layer":
        snapshot, _ = view_state.take_changes()
        return cls(view_state, snapshot, set(snapshot.rows["tile"].unique().to_list()))

    def update(self) -> tuple[set[int], bool]:
        """Takes the newest snapshot; returns the tiles that changed, and whether the view's time did."""
        before = self.snapshot.time
        self.snapshot, changed = self.view_state.take_changes()
        if changed:
            self.tiles = set(self.snapshot.rows["tile"].unique().to_list())
            self.joined_texts.clear()
            for tile in changed:
                self.texts.pop(tile, None)
        return changed, self.snapshot.time != before

    def encode_missing(self, wanted: set[int]) -> None:
        """Encodes the wanted tiles that have no text since their last change, in one call."""
        if missing := wanted - self.texts.keys():
            self.texts |= self.view_state.encode(self.snapshot.rows, missing)
            self.encoded += len(missing)

    def join_texts(self, wanted: set[int]) -> str:
        """The texts of the wanted tiles, divided by commas."""
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
        """`jobs`: summaries of the jobs at a time of the `clock`."""
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
        """The first message to a viewer: which layers there are."""
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
            except Exception:  # noqa: BLE001 - one failed tick must not end the map of all viewers
                _log.exception("a tick failed; the next one follows in %.1f s", self._tick)
            await asyncio.sleep(max(0.0, started + self._tick - loop.time()))

    def tick(self) -> None:
        """Finds the tiles that changed and makes them pending for the viewers that look at them."""
        self.ticks += 1
        for name, layer in self._layers.items():
            changed, has_moved = layer.update()
            if not changed and not has_moved:
                continue
            wanted = [viewer.add_changes(name, changed) for viewer in self.viewers]
            layer.encode_missing(set().union(*wanted))

    def update_status(self) -> None:
        """Encodes the state of the jobs, once for all viewers."""
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
            viewer.add_status()

    def subscribe(self, viewer: Viewer, message: str | bytes) -> None:
        """Replaces what a viewer looks at. A message that is refused (`InvalidRequest`) changes nothing."""
        try:
            subscription = _decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(
                f"{_shorten(message)} is not understood ({error}); "
                'send {"layers": ["name", ...], "box": [west, south, east, north]}'
            ) from None
        if unknown := [name for name in subscription.layers if name not in self._layers]:
            raise InvalidRequest(
                f"there is no layer {_shorten(unknown[0])}; there are {', '.join(self._layers) or 'none'}"
            )
        viewer.look_at(
            Box.from_degrees(subscription.box),
            {name: self._layers[name].tiles for name in subscription.layers},
        )

    async def serve(self, viewer: Viewer) -> None:
        """Sends a viewer what is pending, as fast as it takes it, until it takes nothing for
        `SEND_TIMEOUT`.
        """
        self.viewers.add(viewer)
        try:
            while True:
                await viewer.has_pending.wait()
                viewer.has_pending.clear()
                for message in self._pending_messages(viewer):
                    await viewer.send(message)
                    self.sent += 1
        except TimeoutError:
            _log.info("a viewer took nothing for %.0f s and was disconnected", SEND_TIMEOUT)
        finally:
            self.viewers.discard(viewer)

    def _pending_messages(self, viewer: Viewer) -> Iterable[str]:
        """Lazy: each message is made when the one before it was taken, so it holds the state at that
        moment.
        """
        while viewer.pending_tiles:
            name, tiles = viewer.take_tiles()
            viewer.note_shown(name, tiles, filled=self._layers[name].tiles)
            yield self._tick_message(name, tiles)
        if viewer.take_status():
            yield self._status

    def _tick_message(self, name: str, tiles: set[int]) -> str:
        layer = self._layers[name]
        head = _encode_text(
            {"type": "tick", "layer": name, "time": layer.snapshot.time, "now": self._clock()}
        )
        return f'{head[:-1]},"tiles":[{layer.join_texts(tiles)}]}}'


def _describe_view(view: View) -> dict[str, object]:
    """All that the page needs to draw the view: it knows no view by name."""
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
    """The answer to a message that was refused."""
    return _encode_text({"type": "error", "error": reason})


def _encode_text(message: object) -> str:
    return _json.encode(message).decode()


def _shorten(message: str | bytes) -> str:
    text = message if isinstance(message, str) else message.decode(errors="replace")
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
