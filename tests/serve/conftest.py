"""A real server on a free port, over a real log, and clients that talk to it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from websockets.sync.client import ClientConnection, connect

from millrace.geo import cell_centres, geocell
from millrace.log import Log, open_log
from millrace.log.codecs.codec import encode
from millrace.serve.context import ServerContext
from millrace.serve.server import make_server, open_listener
from millrace.transit.topics import CELL_COUNTS
from millrace.transit.views import VIEWS

TICK = 0.05
LAYER = "vehicle-distribution"
T0 = 1_700_000_000_000
EVERYWHERE = [-180.0, -85.0, 180.0, 85.0]


def cell_at(latitude: float, longitude: float) -> int:
    return int(pl.DataFrame({"latitude": [latitude], "longitude": [longitude]}).select(geocell()).item())


def named(cell: int) -> str:
    return str(cell_centres(pl.Series([cell]))["cell"][0])


CENTRE, HARBOUR, ESPOO, TAMPERE = (
    cell_at(*place) for place in ((60.171, 24.941), (60.167, 24.956), (60.205, 24.655), (61.498, 23.761))
)
"""Two cells of one tile, and one each of two others."""


def results(end: int, counts: dict[int, int], *, op: str = "+", timing: str = "on_time") -> pl.DataFrame:
    """Panes of the window that ends at `T0 + end` seconds."""
    rows = pl.DataFrame(
        {"geocell": list(counts), "count": list(counts.values())},
        schema={"geocell": pl.Int64, "count": pl.Int64},
    )
    at = T0 + end * 1000
    pane = {
        "window_start": at - 30_000,
        "window_end": at,
        "index": 0,
        "settled_index": 0,
        "timing": timing,
        "final": False,
        "op": op,
    }
    return rows.with_columns(
        event_time=pl.lit(at - 1), **{name: pl.lit(value) for name, value in pane.items()}
    )


def write(log: Log, end: int, counts: dict[int, int], **more: str) -> None:
    log.append(CELL_COUNTS.name, encode(CELL_COUNTS, results(end, counts, **more), ingestion_time=T0))


def wait_until(condition: Callable[[], bool], limit: float = 20) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@dataclass(frozen=True)
class Running:
    """A server, as its clients see it."""

    port: int
    state: ServerContext

    def ask(
        self, path: str, *, method: str = "GET", headers: dict[str, str] | None = None
    ) -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        return json.loads(self.ask(path)[1])

    def cells(self, query: str = "") -> dict[str, int]:
        """What the view shows, by cell."""
        return {each["cell"]: each["count"] for each in self.json(f"/api/views/{LAYER}{query}")["cells"]}

    def figure(self, name: str) -> float:
        """A figure of /metrics."""
        lines = self.ask("/metrics")[1].decode().splitlines()
        return float(next(line.rpartition(" ")[2] for line in lines if line.startswith(name)))

    def watch(self, box: list[float] | None = None, **options: Any) -> "Watching":
        """A viewer; with a box, one that has subscribed to it."""
        viewer = Watching(f"ws://127.0.0.1:{self.port}/api/live", **options)
        if box is not None:
            viewer.subscribe(box)
        return viewer


class Watching:
    """A viewer that keeps what it was sent, as the page does."""

    def __init__(self, address: str, **options: Any) -> None:
        self._open = ExitStack()
        self.socket: ClientConnection = self._open.enter_context(connect(address, max_size=None, **options))
        self.hello = json.loads(self.socket.recv(timeout=10))
        self.tiles: dict[str, dict[str, int]] = {}
        self.time: int | None = None
        self.ticks: list[Any] = []
        self.statuses: list[Any] = []
        self.errors: list[str] = []

    def subscribe(self, box: list[float], layers: tuple[str, ...] = (LAYER,)) -> None:
        self.socket.send(json.dumps({"layers": layers, "box": box}))

    @property
    def cells(self) -> dict[str, int]:
        return {cell: count for tile in self.tiles.values() for cell, count in tile.items()}

    def take(self) -> None:
        """The next message."""
        message = json.loads(self.socket.recv(timeout=10))
        match message["type"]:
            case "tick":
                self.ticks.append(message)
                self.time = message["time"]
                self.tiles |= {tile["tile"]: dict(tile["cells"]) for tile in message["tiles"]}
            case "status":
                self.statuses.append(message)
            case "error":
                self.errors.append(message["error"])
            case other:
                pytest.fail(f"a message of type {other}")

    def take_until(self, condition: Callable[[], bool], limit: float = 20) -> None:
        deadline = time.monotonic() + limit
        while not condition():
            assert time.monotonic() < deadline, "it was not told in time"
            self.take()

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"embedded:{tmp_path / 'log'}"


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    opened = open_log(url)
    opened.ensure(CELL_COUNTS)
    yield opened
    opened.close()


@contextmanager
def serving(url: str, *, port: int = 0) -> Iterator[Running]:
    """A server in a thread of this process, ended at the end."""
    with open_listener("127.0.0.1", port) as opened:
        state = ServerContext.create(url, VIEWS[:1], tick=TICK)
        server = make_server(state)
        number = opened.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
        thread.start()
        try:
            wait_until(lambda: server.started or not thread.is_alive())
            yield Running(number, state)
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive(), "the server did not end"


@pytest.fixture
def running(log: Log, url: str) -> Iterator[Running]:
    with serving(url) as server:
        yield server
