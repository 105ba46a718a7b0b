"""GTFS Realtime: vehicles are understood as protobuf and as GeoJSON,
and one that is not leaves the others alone.
"""

import copy
import json
import struct
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.ingest.contract import MessageBatch, ProcessedBatch
from millrace.ingest.processors.gtfs_rt import GtfsRt

TOPIC = "/gtfsrt/vp/tampere/FI/Nysse/BUS/8/1/Atala/0825/05:47/130017/60;23/14/89/12/white/"
RECEIVED = 1600657201148


def field(number: int, value: float | str | bytes) -> bytes:
    """One field as it is on the wire, by the specification of protobuf."""
    match value:
        case int():
            return varint(number << 3) + varint(value)
        case float():
            return varint(number << 3 | 5) + struct.pack("<f", value)
        case str():
            return field(number, value.encode())
        case bytes():
            return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def vehicle(name: str = "56", *, time: bytes = field(5, 1600657200), place: bytes | None = None) -> bytes:
    """An entity, with the field numbers of gtfs-realtime.proto."""
    trip = field(1, "t-1") + field(2, "05:47:00") + field(3, "20200921") + field(5, "8") + field(6, 1)
    where = field(1, 61.5) + field(2, 23.75) + field(3, 90.0) + field(5, 12.5) if place is None else place
    vehicle = (
        field(1, trip) + field(2, where) + field(4, 2) + time + field(7, "0825") + field(8, field(1, name))
    )
    return field(2, field(1, "e") + field(4, vehicle))


HEADER = field(1, field(1, "2.0") + field(3, 1600657190))

FEATURE: dict[str, Any] = {
    "type": "Feature",
    "id": 56,
    "geometry": {"type": "Point", "coordinates": [23.75, 61.5]},
    "properties": {
        "timestamp": 1600657200, "bearing": 90, "speed": 12.5, "route_id": "8", "direction_id": 1,
        "start_date": "20200921",
        "start_time": "05:47:00", "stop_id": "0825", "current_status": "IN_TRANSIT_TO",
    },
}  # fmt: skip

EXPECTED = {
    "vehicle_id": "tampere/56", "operator": "tampere", "latitude": 61.5, "longitude": 23.75, "heading": 90.0,
    "speed": 12.5,
    "acceleration": None, "delay": None, "odometer": None, "doors_open": None, "route": "8", "direction": 2,
    "trip_day": "2020-09-21",
    "trip_start": "05:47", "stop": None, "next_stop": "0825", "event_time": 1600657200000,
    "ingestion_time": RECEIVED,
}  # fmt: skip


def many(*payloads: bytes, topic: str = TOPIC) -> ProcessedBatch:
    return GtfsRt().process_many(
        MessageBatch(
            [topic] * len(payloads), payloads, [RECEIVED] * len(payloads), range(1, len(payloads) + 1), "file"
        )
    )


def rows(done: ProcessedBatch) -> pl.DataFrame:
    return pl.concat([frame for _, frame in done.rows])


@pytest.mark.parametrize(
    "payload",
    [
        HEADER + vehicle(),
        json.dumps(FEATURE).encode(),
        json.dumps({"type": "FeatureCollection", "features": [FEATURE]}).encode(),
    ],
)
def test_a_vehicle_says_the_same_in_either_form(payload: bytes) -> None:
    assert rows(many(payload)).rows(named=True) == [EXPECTED]


def test_a_feed_of_many_vehicles_is_an_event_for_each() -> None:
    done = many(
        HEADER + vehicle("1") + vehicle("2") + field(2, field(1, "alert") + field(5, b"")),
        HEADER + vehicle("3"),
    )
    assert rows(done)["vehicle_id"].to_list() == ["tampere/1", "tampere/2", "tampere/3"]
    assert done.skipped == {"no vehicle position": 1}


def test_a_vehicle_that_is_not_understood_leaves_the_others_of_its_message_alone() -> None:
    done = many(HEADER + vehicle("1") + vehicle("2", place=b"") + vehicle("3", place=field(1, 91.0)))
    assert rows(done)["vehicle_id"].to_list() == ["tampere/1"]
    assert [(reject.reason, reject.raw.origin) for reject in done.rejects] == [
        ("impossible position", "file:1#1"),
        ("impossible position", "file:1#2"),
    ]
    assert [reject.reason for reject in many(done.rejects[1].raw.payload).rejects] == ["impossible position"]


def test_a_vehicle_at_its_stop_is_there_and_not_on_the_way() -> None:
    stopped = copy.deepcopy(FEATURE)
    stopped["properties"]["current_status"] = "STOPPED_AT"
    (row,) = rows(many(json.dumps(stopped).encode())).rows(named=True)
    assert (row["stop"], row["next_stop"]) == ("0825", None)


def test_the_time_of_the_feed_stands_in_and_no_feed_name_means_no_operator() -> None:
    (row,) = rows(many(HEADER + vehicle(time=b""), topic="positions")).rows(named=True)
    assert (row["event_time"], row["vehicle_id"], row["operator"]) == (1600657190000, "56", "")


@pytest.mark.parametrize(("payload", "reason"), [
    (b"", "malformed"),
    (b"\x0a\xff", "malformed"),
    (b"{", "malformed"),
    (b'{"type": "Polygon"}', "wrong type"),
    (field(1, field(1, "2.0")) + vehicle(time=b""), "no timestamp"),
    (HEADER + vehicle("x" * 101), "wrong vehicle_id"),
    (HEADER + vehicle(place=field(1, float("nan")) + field(2, 1.0)), "impossible position"),
    (HEADER + vehicle(place=field(1, 1.0) + field(2, 1.0) + field(5, float("inf"))), "wrong speed"),
    (HEADER + vehicle(time=field(5, 2**63)), "impossible event time"),
    (
        HEADER + vehicle("\udcff".encode(errors="surrogateescape").decode("latin-1"))
        + b"\x12\x03\x0a\x01\xff",
        "malformed",
    ),
])  # fmt: skip
def test_what_cannot_be_understood_is_rejected_with_one_of_a_few_reasons(payload: bytes, reason: str) -> None:
    done = many(payload, HEADER + vehicle())
    assert [reject.reason for reject in done.rejects] == [reason]
    assert done.rejects[0].detail
    assert len(rows(done)) == 1


ODD = [
    None,
    True,
    -1,
    10**400,
    1e308,
    "",
    "9" * 10_000,
    "💥\0",
    [],
    {},
    [1, 2],
    {"a": 1},
    "2020-02-30T00:00:00Z",
]


@pytest.mark.parametrize("place", ["", "geometry", "properties"])
@pytest.mark.parametrize("odd", [*ODD, ...], ids=lambda odd: str(odd)[:20])
def test_each_field_of_a_feature_may_be_missing_or_anything(place: str, odd: Any) -> None:
    names = list(FEATURE[place] if place else FEATURE)
    payloads = []
    for name in names:
        feature = copy.deepcopy(FEATURE)
        inside = feature[place] if place else feature
        if odd is ...:
            del inside[name]
        else:
            inside[name] = odd
        payloads.append(json.dumps(feature).encode())
    done = many(*payloads)
    assert sum(len(frame) for _, frame in done.rows) + len(done.rejects) + done.skipped.total() >= len(
        payloads
    )
    assert len({reject.reason for reject in done.rejects}) <= 9


@given(st.lists(st.tuples(st.integers(0, 120), st.binary(max_size=4), st.integers(0, 4)), max_size=4))
def test_damaged_protobuf_never_stops_what_follows(damages: list[tuple[int, bytes, int]]) -> None:
    payload = HEADER + vehicle()
    for at, put, removed in damages:
        payload = payload[:at] + put + payload[at + removed :]
    done = many(payload, HEADER + vehicle("after"))
    assert rows(done)["vehicle_id"].to_list()[-1] == "tampere/after"
    assert all(reject.reason and reject.raw.origin for reject in done.rejects)


def test_a_feed_without_vehicles_is_counted() -> None:
    from millrace.ingest.processors.gtfs_realtime_pb2 import FeedMessage

    feed = FeedMessage()
    feed.header.timestamp = 1_600_000_000
    payloads = [feed.SerializeToString(), b'{"type": "FeatureCollection", "features": []}']
    done = GtfsRt().process_many(MessageBatch(["", ""], payloads, [0, 0], [1, 2], "s"))
    assert (list(done.rows), list(done.rejects), done.skipped) == ([], [], {"empty feed": 2})
