"""The hub over its WebSocket: viewers get the tiles that they look at, in the newest state, encoded once."""

import json
from contextlib import closing

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from millrace.log import Log
from millrace.transit.topics import CELL_COUNTS
from serve.conftest import (
    CENTRE,
    ESPOO,
    EVERYWHERE,
    HARBOUR,
    LAYER,
    T0,
    TAMPERE,
    Running,
    cell_at,
    named,
    serving,
    wait_until,
    write,
)

HELSINKI = [24.90, 60.15, 24.97, 60.18]
WEST = [24.60, 60.19, 24.70, 60.22]


def test_a_viewer_is_told_what_there_is(running: Running) -> None:
    with closing(running.watch()) as viewer:
        words = {"noun": "vehicles", "legend": "Vehicles per hexagon", "unit": "", "values": ["count"]}
        layer = {
            "name": LAYER,
            "title": "Vehicles",
            "topic": CELL_COUNTS.name,
            "kind": "cells",
            "window_ms": 30_000,
            "every_ms": 5_000,
            **words,
        }
        assert viewer.hello == {"type": "hello", "layers": [layer], "tick_ms": 50}


def test_two_viewers_with_different_boxes_get_different_tiles(log: Log, running: Running) -> None:
    write(log, 0, {CENTRE: 3, HARBOUR: 1, ESPOO: 7, TAMPERE: 2})
    with closing(running.watch(HELSINKI)) as one, closing(running.watch(WEST)) as two:
        one.take_until(lambda: len(one.cells) == 2)
        two.take_until(lambda: len(two.cells) == 1)
        assert one.cells == {named(CENTRE): 3, named(HARBOUR): 1}
        assert two.cells == {named(ESPOO): 7}
        write(log, 5, {CENTRE: 4, HARBOUR: 1, ESPOO: 8, TAMPERE: 9})
        one.take_until(lambda: one.cells.get(named(CENTRE)) == 4)
        two.take_until(lambda: two.cells.get(named(ESPOO)) == 8)
        assert (one.time, two.time) == (T0 + 5_000, T0 + 5_000)
        assert not one.tiles.keys() & two.tiles.keys()
        assert named(TAMPERE) not in {**one.cells, **two.cells}


def test_a_tile_is_whole_and_comes_only_when_it_changed(log: Log, running: Running) -> None:
    write(log, 0, {CENTRE: 3, HARBOUR: 1, ESPOO: 7})
    with closing(running.watch(EVERYWHERE)) as viewer:
        viewer.take_until(lambda: len(viewer.cells) == 3)
        write(log, 5, {CENTRE: 3, HARBOUR: 2, ESPOO: 7})
        viewer.take_until(lambda: viewer.time == T0 + 5_000)
        (tile,) = viewer.ticks[-1]["tiles"]
        assert dict(tile["cells"]) == {named(CENTRE): 3, named(HARBOUR): 2}, "the other tile is as it was"
        assert tile["tile"].split("/") == ["12", "2331", "1185"]
        write(log, 10, {CENTRE: 3, HARBOUR: 2, ESPOO: 7})
        viewer.take_until(lambda: viewer.time == T0 + 10_000)
        assert viewer.ticks[-1]["tiles"] == [], "time alone has moved"


def test_a_tile_is_encoded_once_for_all_viewers(log: Log, running: Running) -> None:
    write(log, 0, {CENTRE: 1, ESPOO: 1})
    viewers = [running.watch(EVERYWHERE) for _ in range(8)]
    for viewer in viewers:
        viewer.take_until(lambda viewer=viewer: len(viewer.cells) == 2)  # type: ignore[misc]
    assert running.figure("millrace_serve_tiles_encoded_total") == 2
    for window in range(1, 6):
        write(log, window * 5, {CENTRE: window + 1, ESPOO: 1})
        for viewer in viewers:
            viewer.take_until(lambda viewer=viewer, window=window: viewer.cells[named(CENTRE)] == window + 1)  # type: ignore[misc]
    assert running.figure("millrace_serve_tiles_encoded_total") == 2 + 5
    for viewer in viewers:
        viewer.close()
    wait_until(lambda: running.figure("millrace_serve_viewers") == 0)


def test_what_nobody_looks_at_is_not_encoded(log: Log, running: Running) -> None:
    with closing(running.watch(HELSINKI)) as viewer:
        for window in range(5):
            write(log, window * 5, {ESPOO: window + 1, TAMPERE: window + 1})
            viewer.take_until(lambda window=window: viewer.time == T0 + window * 5_000)  # type: ignore[misc]
        assert running.figure("millrace_serve_tiles_encoded_total") == 0


def test_a_new_subscription_replaces_the_old_one_and_gets_all_its_tiles(log: Log, running: Running) -> None:
    write(log, 0, {CENTRE: 3, ESPOO: 7})
    with closing(running.watch(HELSINKI)) as viewer:
        viewer.take_until(lambda: viewer.cells == {named(CENTRE): 3})
        viewer.subscribe(WEST)
        viewer.take_until(lambda: named(ESPOO) in viewer.cells)
        write(log, 5, {CENTRE: 4, ESPOO: 8})
        viewer.take_until(lambda: viewer.cells[named(ESPOO)] == 8)
        assert viewer.cells[named(CENTRE)] == 3, "it no longer looks there"
        write(log, 10, {ESPOO: 8})
        write(log, 20, {ESPOO: 9})
        viewer.take_until(lambda: viewer.cells[named(ESPOO)] == 9)
        viewer.subscribe(EVERYWHERE)
        viewer.take_until(lambda: named(CENTRE) not in viewer.cells)
        assert viewer.cells == {named(ESPOO): 9}, "it is told that what it had is empty by now"
        viewer.subscribe(EVERYWHERE, layers=())
        write(log, 25, {ESPOO: 1})
        seen = len(viewer.ticks)
        viewer.take_until(lambda: len(viewer.statuses) > 2)
        assert (len(viewer.ticks), viewer.cells) == (seen, {named(ESPOO): 9})


def test_a_box_may_cross_the_antimeridian(log: Log, running: Running) -> None:
    fiji, samoa = cell_at(-17.0, 179.9), cell_at(-17.0, -179.9)
    write(log, 0, {fiji: 1, samoa: 2, CENTRE: 3})
    with closing(running.watch([179.0, -20.0, -179.0, -10.0])) as viewer:
        viewer.take_until(lambda: len(viewer.cells) == 2)
        assert viewer.cells == {named(fiji): 1, named(samoa): 2}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("no json", "is not understood"),
        ('{"layers": ["vehicle-distribution"]}', "missing required field `box`"),
        (
            '{"layers": ["trains"], "box": [24, 60, 25, 61]}',
            "there is no layer 'trains'; there are vehicle-distribution",
        ),
        (
            '{"layers": ["vehicle-distribution"], "box": [24, 60, 25]}',
            "box=24,60,25 is not a box; give four numbers",
        ),
        (
            '{"layers": ["vehicle-distribution"], "box": [24, 61, 25, 60]}',
            "south=61 and north=60 must be between -90 and 90",
        ),
        ('{"layers": ["vehicle-distribution"], "box": [24, 60, 1e300, 61]}', "are not degrees"),
        ('{"layers": [], "box": [24, 60, 25, 61], "zoom": 3}', "unknown field `zoom`"),
        (b"\xff\x00", "is not understood"),
    ],
)
def test_a_bad_message_is_answered_and_the_connection_stays(
    log: Log, running: Running, message: str | bytes, reason: str
) -> None:
    write(log, 0, {CENTRE: 3})
    with closing(running.watch(HELSINKI)) as viewer:
        viewer.take_until(lambda: bool(viewer.cells))
        viewer.socket.send(message)
        viewer.take_until(lambda: bool(viewer.errors))
        assert reason in viewer.errors[0]
        write(log, 5, {CENTRE: 4})
        viewer.take_until(lambda: viewer.cells == {named(CENTRE): 4})


def test_a_message_that_is_too_large_ends_the_connection(running: Running) -> None:
    with closing(running.watch()) as viewer:
        viewer.socket.send(json.dumps({"layers": ["x" * 100_000], "box": EVERYWHERE}))
        with pytest.raises(ConnectionClosed) as closed:
            viewer.take_until(lambda: False)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


@pytest.mark.parametrize("origin", ["http://localhost:5173", "http://127.0.0.1:1", "http://[::1]:8080", None])
def test_pages_of_this_machine_may_look_in(running: Running, origin: str | None) -> None:
    with connect(
        f"ws://127.0.0.1:{running.port}/api/live", origin=Origin(origin) if origin else None
    ) as socket:
        assert json.loads(socket.recv(timeout=10))["type"] == "hello"


@pytest.mark.parametrize(
    "origin", ["http://elsewhere.example", "https://localhost.elsewhere.example", "null", "http://[bad"]
)
def test_pages_of_other_sites_may_not(running: Running, origin: str) -> None:
    address = f"ws://127.0.0.1:{running.port}/api/live"
    with pytest.raises(InvalidStatus) as refused, connect(address, origin=Origin(origin)):
        pass
    assert refused.value.response.status_code == 403


def test_a_viewer_that_comes_back_after_a_restart_sees_the_same(log: Log, url: str) -> None:
    write(log, 0, {CENTRE: 3, ESPOO: 7})
    with serving(url) as first, closing(first.watch(EVERYWHERE)) as viewer:
        viewer.take_until(lambda: len(viewer.cells) == 2)
        port = first.port
    with serving(url, port=port) as second, closing(second.watch(EVERYWHERE)) as again:
        again.take_until(lambda: again.time is not None)
        assert (again.cells, again.time) == (viewer.cells, viewer.time), "all of it with the first message"
