"""A viewer that does not keep up costs little, disturbs nobody,
and is shown the newest state when it is back.
"""

import base64
import json
import os
import socket
import time
from contextlib import closing

import pytest
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from millrace.log import Log
from millrace.serve import server as server_module
from serve.conftest import EVERYWHERE, LAYER, T0, Running, cell_at, named, serving, wait_until, write

pytestmark = pytest.mark.slow

CITY = [cell_at(60.0 + row * 0.01, 24.5 + column * 0.02) for row in range(40) for column in range(40)]
"""A cell every kilometre or so."""


def counts(window: int) -> dict[int, int]:
    return {cell: window * 10_000 + place for place, cell in enumerate(CITY)}


class Stalled:
    """A viewer on a bare socket with little room, so that what it does not read stays with the server."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", port))
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /api/live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: "
            f"Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        headers = b""
        while not headers.endswith(b"\r\n\r\n"):
            headers += self.socket.recv(1)
        subscription = json.dumps({"layers": [LAYER], "box": EVERYWHERE}).encode()
        self.socket.sendall(Frame(Opcode.TEXT, subscription).serialize(mask=True))
        self.received = 0

    def drain(self, until: int) -> list[dict[str, object]]:
        """Reads messages until one is of the window that ends at `T0 + until` seconds."""
        reader = StreamReader()
        messages: list[dict[str, object]] = []
        while not messages or messages[-1].get("time") != T0 + until * 1000:
            frame = yield_from(Frame.parse(reader.read_exact, mask=False), reader, self)
            if frame.opcode is Opcode.TEXT:
                messages.append(json.loads(bytes(frame.data)))
        return messages


def yield_from(parsing: object, reader: StreamReader, viewer: Stalled) -> Frame:
    """Runs the parser, which asks for more bytes by yielding."""
    while True:
        try:
            next(parsing)  # type: ignore[call-overload]
        except StopIteration as done:
            frame: Frame = done.value
            return frame
        data = viewer.socket.recv(65_536)
        assert data, "the server closed the connection"
        viewer.received += len(data)
        reader.feed_data(data)


def test_a_viewer_that_does_not_read_is_owed_tiles_not_messages(log: Log, running: Running) -> None:
    stalled = Stalled(running.port)
    windows = 40
    with closing(stalled.socket), closing(running.watch(EVERYWHERE)) as brisk:
        for window in range(1, windows + 1):
            write(log, window * 5, counts(window))
            brisk.take_until(lambda window=window: brisk.time == T0 + window * 5_000)  # type: ignore[misc]
        size = len(json.dumps(brisk.ticks[-1], separators=(",", ":")))
        owed = [viewer.pending_tiles.get(LAYER, set()) for viewer in running.state.hub.viewers]
        assert sorted(map(len, owed)) == [0, len(brisk.tiles)], "every tile once, however often it changed"
        messages = stalled.drain(windows * 5)
    ticks = [message for message in messages if message["type"] == "tick"]
    shown = {cell: count for tile in ticks[-1]["tiles"] for cell, count in tile["cells"]}  # type: ignore[attr-defined]
    assert shown == {named(cell): count for cell, count in counts(windows).items()}, "the newest state, whole"
    assert len(ticks) < windows / 2, f"{len(ticks)} of {windows} windows: the others were never sent"
    assert stalled.received < 1_000_000 + 2 * size, (
        "what the system keeps for a connection, a message on its way, and the newest"
    )


def test_a_server_with_a_stalled_viewer_still_ends_at_once(log: Log, url: str) -> None:
    with serving(url) as running:
        stalled = Stalled(running.port)
        for window in range(1, 21):
            write(log, window * 5, counts(window))
            wait_until(
                lambda window=window: running.json("/api/views")["views"][0]["time"] == T0 + window * 5_000  # type: ignore[misc]
            )
        wait_until(lambda: any(viewer.pending_tiles for viewer in running.state.hub.viewers))
        begun = time.monotonic()
    assert time.monotonic() - begun < 3
    stalled.socket.close()


@pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system cannot be told to give up on a connection"
)
def test_a_viewer_that_takes_nothing_for_long_is_dropped(
    log: Log, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "STUCK_MS", 500)
    with serving(url) as running:
        stalled = Stalled(running.port)
        wait_until(lambda: len(running.state.hub.viewers) == 1)
        window = 0
        while running.state.hub.viewers:
            window += 1
            assert window < 200, "it was not dropped"
            write(log, window * 5, counts(window))
            wait_until(
                lambda window=window: running.json("/api/views")["views"][0]["time"] == T0 + window * 5_000  # type: ignore[misc]
            )
        stalled.socket.close()
