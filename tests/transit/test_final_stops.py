"""Where routes end: from GTFS files, and from a service that is asked over HTTP;
a job hears the same from both.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

import polars as pl
import pytest

from ingest.connectors.simulator.cities import MORNING
from millrace import panes
from millrace.errors import DefinitionError
from millrace.ingest.connectors import recording_frames
from millrace.ingest.connectors.simulator.city import City, CityPlan
from millrace.runners.replay import replay
from millrace.transit import POSITIONS
from millrace.transit.final_stops import FinalStop, final_stops, load_final_stops
from millrace.transit.jobs import final_stop_distribution
from transit.jobs import plainly

DAY = "hsl-route2510-2020-09-23.jsonl.gz"


def feed(folder: Path, **texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


STOPS = "stop_id,stop_lat,stop_lon\na,60.1,24.1\nb,60.2,24.2\nc,60.3,24.3\n"


def test_a_route_ends_where_most_of_its_trips_do(tmp_path: Path) -> None:
    folder = feed(
        tmp_path,
        stops=STOPS,
        trips="route_id,service_id,trip_id,direction_id\n1,s,x,0\n1,s,y,0\n1,s,z,0\n1,s,back,1\n",
        stop_times="trip_id,stop_id,stop_sequence\nx,a,1\nx,b,10\nx,c,9\ny,a,1\ny,b,2\nz,a,1\nz,c,2\nback,b,1\nback,a,2\n",
    )
    find = final_stops(str(folder))
    assert find("1", 1) == FinalStop("b", 60.2, 24.2)
    assert find("1", 2) == FinalStop("a", 60.1, 24.1)
    assert find("2", 1) is None


@pytest.mark.parametrize(("where", "message"), [
    ("no-such-folder", "holds no GTFS feed"),
    ("http://stops.example.org/", "write {route} and {direction}"),
])  # fmt: skip
def test_what_cannot_be_asked_is_refused_with_the_remedy(
    where: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DefinitionError) as refused:
        final_stop_distribution(stops=where)
    assert message in str(refused.value)


class Service(BaseHTTPRequestHandler):
    known: ClassVar[dict[tuple[str, int], FinalStop]] = {}
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        _, route, direction = map(unquote, self.path.split("/"))
        self.asked.append(self.path)
        found = self.known.get((route, int(direction)))
        body = json.dumps(vars(found)).encode() if found else b""
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


class Patient(ThreadingHTTPServer):
    request_queue_size = 128
    """Callers come all at once; with the usual 5 the system would let some try again only after a second."""


@contextmanager
def served(known: dict[tuple[str, int], FinalStop]) -> Iterator[str]:
    Service.known, Service.asked[:] = known, []
    with Patient(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{{route}}/{{direction}}"
        server.shutdown()


def test_a_simulated_city_writes_the_feed_that_its_vehicles_follow(tmp_path: Path) -> None:
    made = City(CityPlan(scale=0.02, volume="peak"), start=MORNING, truth=tmp_path)
    rows = pl.concat(
        [frame for minute in range(1, 6) for _, frame in made.advance(MORNING + minute * 60_000)]
    )
    made.close()
    ends = pl.read_parquet(tmp_path / "routes.parquet").sort("sequence").group_by("route", "direction").last()
    known = load_final_stops(tmp_path / "gtfs")
    assert {direction: stop.final_stop for direction, stop in known.items()} == {
        (r, d): s for r, d, s in ends.select("route", "direction", "stop").rows()
    }
    shown = replay(final_stop_distribution(stops=str(tmp_path / "gtfs")), {POSITIONS.name: rows})
    heading = plainly.placed(rows).join(
        ends.select("route", "direction", "stop"), on=["route", "direction"], maintain_order="left"
    )
    places = pl.read_parquet(tmp_path / "stops.parquet")
    cells = {stop: plainly.cell(latitude, longitude) for stop, latitude, longitude in places.rows()}
    heading = heading.with_columns(
        geocell=pl.Series([cells[stop] for stop in heading["stop_right"]], dtype=pl.Int64)
    )
    expected = plainly.counted(heading, size=300_000, lateness=60_000)
    found = panes.latest_panes(shown, ["geocell"])
    assert found.select(sorted(found.columns)).sort("window_end", "geocell").equals(expected)
    with served(known) as url:
        asked = replay(final_stop_distribution(stops=url), {POSITIONS.name: rows})
    assert asked.sort(asked.columns).equals(shown.sort(shown.columns))
    assert len(Service.asked) == len(set(Service.asked)) > 5


@pytest.mark.recordings
def test_buses_of_a_real_day_head_to_the_ends_of_their_real_route(recordings: Path, tmp_path: Path) -> None:
    gtfs = recordings.parent / "gtfs-hsl"
    listed = pl.read_csv(gtfs / "stops.txt", infer_schema=False)
    (tmp_path / "stops.txt").symlink_to(gtfs / "stops.txt")
    order = (
        pl.read_csv(gtfs / "stop_on_route_1059_1500_2510.csv", infer_schema=False)
        .with_columns(
            pl.col("route_ver_id").str.split("_").list.get(0).alias("route_id"),
            pl.col("route_ver_id").str.split("_").list.get(1).alias("direction"),
        )
        .filter(pl.col("stop_id").is_in(listed["stop_id"].to_list()))
    )  # the list is older than the routes: some stops are not in it
    order.select(
        "route_id", trip_id="route_ver_id", direction_id=pl.col("direction").cast(pl.Int64) - 1
    ).unique().write_csv(tmp_path / "trips.txt")
    order.select(trip_id="route_ver_id", stop_sequence="stop_seq", stop_id="stop_id").write_csv(
        tmp_path / "stop_times.txt"
    )
    events = recording_frames.read_frames(recordings / DAY, processor="hsl")
    shown = panes.latest_panes(replay(final_stop_distribution(stops=str(tmp_path)), events), ["geocell"])
    ends = (
        order.filter(pl.col("route_id") == "2510", pl.col("direction") == "1")
        .sort(pl.col("stop_seq").cast(pl.Int64))
        .group_by("direction")
        .last()["stop_id"]
        .to_list()
    )
    [place] = listed.filter(pl.col("stop_id").is_in(ends)).select("stop_lat", "stop_lon").rows()
    assert set(shown["geocell"]) == {plainly.cell(*map(float, place))}
    assert shown["count"].max() == 5
