"""HFP v2: vehicle positions are understood exactly, and nothing that a message contains stops the others."""

import copy
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.ingest.connectors.recording import Recording
from millrace.ingest.contract import MessageBatch, MessageRejected, ProcessedBatch, RawMessage
from millrace.ingest.processors.hsl import EVENT_TYPES, Hsl
from millrace.topics import Topic
from millrace.transit import POSITIONS

TOPIC = "/hfp/v2/journey/ongoing/vp/tram/0040/00456/1006/1/Arabia/05:47/1111428/5/60;24/19/75/80"
VP: dict[str, Any] = {
    "desi": "6", "dir": "1", "oper": 40, "veh": 456, "tst": "2020-09-21T03:00:00.963Z", "tsi": 1600657200,
    "spd": 0.57, "hdg": 339,
    "lat": 60.178041, "long": 24.950185, "acc": 0.56, "dl": -8, "odo": 2653, "drst": 0, "oday": "2020-09-21",
    "jrn": 16, "line": 34,
    "start": "05:47", "loc": "GPS", "stop": None, "route": "1006", "occu": 0,
}  # fmt: skip
RECEIVED = 1600657201148


def raw(payload: Any = None, **changes: Any) -> RawMessage:
    body = {"VP": {**VP, **changes}} if payload is None else payload
    return RawMessage(
        _topic(body), body if isinstance(body, bytes) else json.dumps(body).encode(), RECEIVED, "file:1"
    )


def _topic(body: Any) -> str:
    """The topic of the vehicle of which a message tells."""
    reports = [one for one in body.values() if isinstance(one, dict)] if isinstance(body, dict) else []
    operator, vehicle = ([one.get(name) for one in reports] for name in ("oper", "veh"))
    if not reports or type(operator[0]) is not int or type(vehicle[0]) is not int or vehicle[0] < 0:
        return TOPIC
    return TOPIC.replace("/0040/00456/", f"/{operator[0]:04}/{vehicle[0]:05}/")


def many(*messages: RawMessage) -> ProcessedBatch:
    topics, payloads, received = (
        [m.topic for m in messages],
        [m.payload for m in messages],
        [m.received for m in messages],
    )
    return Hsl().process_many(MessageBatch(topics, payloads, received, range(1, len(messages) + 1), "file"))


def reason(message: RawMessage) -> str | None:
    try:
        Hsl().process(message)
    except MessageRejected as rejected:
        return rejected.reason
    return None


def test_a_vehicle_position_says_what_the_message_says() -> None:
    event = Hsl().process(raw())
    assert event is not None
    assert (event.topic, event.event_time) == (POSITIONS, 1600657200963)
    assert event.details == {
        "vehicle_id": "40/456", "operator": "40", "latitude": 60.178041, "longitude": 24.950185,
        "heading": 339.0, "speed": 0.57,
        "acceleration": 0.56, "delay": 8, "odometer": 2653.0, "doors_open": False, "route": "1006",
        "direction": 1,
        "trip_day": "2020-09-21", "trip_start": "05:47", "stop": None, "next_stop": "1111428",
    }  # fmt: skip


def test_rows_have_the_columns_of_the_topic_and_the_times() -> None:
    ((topic, rows),) = many(raw(), raw(veh=457)).rows
    assert topic is POSITIONS
    assert rows.schema == {
        **POSITIONS.schema,
        "event_time": rows.schema["event_time"],
        "ingestion_time": rows.schema["ingestion_time"],
    }
    assert rows["vehicle_id"].to_list() == ["40/456", "40/457"]
    assert rows["ingestion_time"].to_list() == [RECEIVED, RECEIVED]


def test_what_a_vehicle_does_not_know_is_absent_rather_than_zero() -> None:
    unknown = dict.fromkeys(
        ("spd", "hdg", "acc", "dl", "odo", "drst", "route", "dir", "oday", "start", "stop")
    )
    event = Hsl().process(raw(**unknown))
    assert event is not None
    assert {name for name, value in event.details.items() if value is not None} == {
        "vehicle_id",
        "operator",
        "latitude",
        "longitude",
        "next_stop",
    }


def test_vehicles_with_the_same_number_of_two_operators_are_two() -> None:
    ((_, rows),) = many(raw(oper=12), raw(oper=22)).rows
    assert rows["vehicle_id"].to_list() == ["12/456", "22/456"]


def test_a_vehicle_is_known_by_its_topic_though_another_company_runs_the_trip() -> None:
    own, lent = raw(oper=40), RawMessage(TOPIC, raw(oper=12).payload, RECEIVED)
    ((_, rows),) = many(own, lent).rows
    assert rows["vehicle_id"].to_list() == ["40/456", "40/456"]
    assert rows["operator"].to_list() == ["40", "12"]


def test_a_record_without_oper_is_known_by_its_topic() -> None:
    body = {name: value for name, value in VP.items() if name != "oper"}
    ((_, rows),) = many(raw(oper=None), raw({"VP": body})).rows
    assert rows["vehicle_id"].to_list() == ["40/456", "40/456"]
    assert rows["operator"].to_list() == ["40", "40"]


def test_version_1_takes_the_route_from_the_topic() -> None:
    topic = "/hfp/v1/journey/ongoing/tram/0040/00456/1006T/2/Arabia/05:47/1111428/5/60;24/19/75/80"
    body = {name: value for name, value in VP.items() if name not in ("route", "dir")}
    event = Hsl().process(RawMessage(topic, json.dumps({"VP": body}).encode(), RECEIVED))
    assert event is not None
    assert (event.details["route"], event.details["direction"], event.details["vehicle_id"]) == (
        "1006T",
        2,
        "40/456",
    )


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["hsl-2020-09-21.jsonl.gz", "hsl-route2510-2020-09-23.jsonl.gz"])
def test_a_vehicle_of_a_recording_is_never_two(recordings: Path, name: str) -> None:
    from millrace.ingest.connectors.recording import Recording

    vehicles: set[str] = set()
    topics: set[tuple[int, int]] = set()
    with Recording(recordings / name, speed="max") as recording:
        while (batch := recording.poll(limit=10_000, wait=0)) is not None:
            done = Hsl().process_many(batch)
            rejected = {reject.raw.origin for reject in done.rejects}
            vehicles.update(name for _, rows in done.rows for name in rows["vehicle_id"].unique())
            good = [
                batch.topics[i]
                for i in range(len(batch))
                if f"{batch.source}:{batch.positions[i]}" not in rejected
            ]
            topics.update((int(topic.split("/")[7]), int(topic.split("/")[8])) for topic in good)
    assert vehicles == {f"{operator}/{vehicle}" for operator, vehicle in topics}


@pytest.mark.parametrize(("text", "millis"), [
    ("2020-09-21T03:00:00.963Z", 1600657200963),
    ("2020-09-21T06:00:00.963+03:00", 1600657200963),
    ("2020-09-21T03:00:00Z", 1600657200000),
    ("1970-01-01T00:00:00.000Z", 0),
    ("3000-01-01T00:00:00.000Z", 32503680000000),
])  # fmt: skip
def test_event_time_is_tst_in_whole_milliseconds(text: str, millis: int) -> None:
    event = Hsl().process(raw(tst=text))
    assert event is not None
    assert event.event_time == millis


@pytest.mark.parametrize(("kind", "topic"), EVENT_TYPES.items())
def test_every_type_of_event_goes_to_its_topic_with_all_its_columns(kind: str, topic: Topic) -> None:
    ((where, rows),) = many(raw({kind: VP})).rows
    assert where is topic
    assert list(rows.columns) == [*topic.schema, "event_time", "ingestion_time"]
    (row,) = rows.rows(named=True)
    assert (row["vehicle_id"], row["latitude"], row["event_time"]) == ("40/456", 60.178041, 1600657200963)
    assert row.get("kind", kind) == kind
    assert row.get("delay", 8) == 8
    assert row.get("open", kind == "DOO") == (kind == "DOO")


def test_a_batch_is_divided_by_topic_in_the_order_of_arrival() -> None:
    done = many(raw({"DOC": {**VP, "veh": 1}}), raw(), raw({"ARS": VP}), raw({"DOO": {**VP, "veh": 2}}))
    assert [(topic.name, rows["vehicle_id"].to_list()) for topic, rows in done.rows] == [
        ("input.vehicle-positions", ["40/456"]),
        ("input.arrivals", ["40/456"]),
        ("input.door-events", ["40/1", "40/2"]),
    ]


def test_messages_of_version_1_have_the_next_stop_one_place_earlier() -> None:
    message = RawMessage(
        "/hfp/v1/journey/ongoing/tram/0040/00456/1006/1/Arabia/05:47/1111428/5/60;24/19/75/80",
        raw().payload,
        RECEIVED,
    )
    event = Hsl().process(message)
    assert event is not None
    assert (event.topic, event.details["next_stop"]) == (POSITIONS, "1111428")


@pytest.mark.parametrize(("message", "expected"), [
    (raw(lat=None, long=None), "no position"),
    (raw(long=None), "no position"),
    (raw(lat=90.1), "impossible position"),
    (raw(long=-180.1), "impossible position"),
    (raw(lat=0, long=0), "impossible position"),
    (raw(lat="60.1"), "wrong lat"),
    (raw(veh=None), "no veh"),
    (RawMessage("", raw(oper=None).payload, RECEIVED, "file:1"), "no oper"),
    (raw(oper="x"), "wrong oper"),
    (raw(tst=None), "no tst"),
    (raw({"VP": {}}), "no veh"),
    (raw(tst="yesterday"), "wrong tst"),
    (raw(tst="2020-09-21T03:00:00.963"), "wrong tst"),
    (raw(tst=1600657200), "wrong tst"),
    (raw(spd="fast"), "wrong spd"),
    (raw(spd=[1]), "wrong spd"),
    (raw(veh=-1), "wrong veh"),
    (raw(veh=2**31), "wrong veh"),
    (raw(veh=10**40), "wrong veh"),
    (raw(veh=True), "wrong veh"),
    (raw(dl=10**12), "wrong dl"),
    (raw(drst=2), "wrong drst"),
    (raw(dir="3"), "wrong dir"),
    (raw(route="x" * 101), "wrong route"),
    (raw({"VP": None}), "wrong type"),
    (raw({"VP": [VP]}), "wrong type"),
    (raw([]), "wrong type"),
    (raw(b"null"), "wrong type"),
    (raw({}), "unknown event type"),
    (raw({"XYZ": VP}), "unknown event type"),
    (raw({"vp": VP}), "unknown event type"),
    (raw(b""), "malformed"),
    (raw(b"{"), "malformed"),
    (raw(b"\xff\xff"), "malformed"),
    (raw(b'{"VP":{"route":"\xff"}}'), "malformed"),
    (raw(b'{"VP":{"lat":NaN}}'), "malformed"),
    (raw(b'{"VP":{"x":' + b"[" * 100_000), "malformed"),
])  # fmt: skip
def test_what_cannot_be_understood_is_rejected_with_one_of_a_few_reasons(
    message: RawMessage, expected: str
) -> None:
    assert reason(message) == expected
    done = many(raw(), message, raw(veh=9))
    assert [(reject.reason, reject.raw.payload, reject.raw.origin) for reject in done.rejects] == [
        (expected, message.payload, "file:2")
    ]
    assert done.rejects[0].detail
    assert done.rows[0][1]["vehicle_id"].to_list() == ["40/456", "40/9"]


def test_a_batch_of_nothing_good_has_no_rows() -> None:
    done = many(raw(b"x"), raw({"DUE": {}}))
    assert (list(done.rows), [reject.reason for reject in done.rejects]) == ([], ["malformed", "no veh"])


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "x",
        "/hfp/v2",
        "/hfp/v1/journey/ongoing/tram/0040",
        "/" * 30,
        "ä/\0/💥",
        TOPIC.replace("1111428", "EOL"),
    ],
)
def test_a_topic_that_says_nothing_costs_only_the_next_stop(topic: str) -> None:
    event = Hsl().process(RawMessage(topic, raw().payload, RECEIVED))
    assert event is not None
    assert event.details["next_stop"] is None
    assert event.details["vehicle_id"] == "40/456"


ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text("aZ09 :.-/ä💥\0\ud800", max_size=20),
    st.sampled_from(
        [
            "",
            "x" * 10_000,
            10**400,
            -(10**400),
            1e308,
            5e-324,
            {},
            [],
            [[[]]],
            {"a": {"b": 1}},
            "2020-02-30T00:00:00Z",
            "0001-01-01T00:00:00+14:00",
            "9999-12-31T23:59:59.999Z",
        ]
    ),
    st.dictionaries(st.text("ab", max_size=5), st.integers(), max_size=3),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A real-looking message with fields removed, replaced, added, or the text itself damaged."""
    message: dict[str, Any] = copy.deepcopy(VP)
    for field in draw(st.lists(st.sampled_from(sorted(VP)), max_size=4)):
        if draw(st.booleans()):
            message.pop(field, None)
        else:
            message[field] = draw(ODD)
    body: Any = draw(
        st.sampled_from(
            [
                {"VP": message},
                {"VP": message, "ARR": message},
                {"ARR": message},
                {"DOO": message},
                message,
                [message],
                {"VP": {"VP": message}},
            ]
        )
    )
    text = json.dumps(body).encode(errors="surrogatepass")
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.binary(max_size=5)) + text[at + draw(st.integers(0, 5)) :]
    return text


@settings(deadline=None)
@given(st.lists(mutated(), min_size=1, max_size=8))
def test_every_fuzzed_message_ends_in_exactly_one_place(payloads: list[bytes]) -> None:
    messages = [raw(payload) for payload in payloads]
    done = many(*messages)
    rows = sum(len(frame) for _, frame in done.rows)
    assert rows + len(done.rejects) + done.skipped.total() == len(messages)
    for _, frame in done.rows:
        assert frame["latitude"].is_between(-90, 90).all()
        assert frame["longitude"].is_between(-180, 180).all()
        assert frame.select("vehicle_id", "event_time", "ingestion_time").null_count().row(0) == (0, 0, 0)


@settings(deadline=None)
@given(mutated())
def test_a_message_by_itself_means_what_it_means_in_a_batch(payload: bytes) -> None:
    message = raw(payload)
    done = many(message)
    assert [reject.reason for reject in done.rejects] == [found for found in [reason(message)] if found]
    if not done.rejects:
        assert (Hsl().process(message) is None) == (not done.rows)


@pytest.mark.parametrize("field", sorted(VP))
@pytest.mark.parametrize("how", ["removed", "nulled", "retyped", "huge"])
@pytest.mark.parametrize("kind", ["VP", "ARS", "DOO", "DUE"])
def test_each_field_may_be_removed_nulled_retyped_or_huge(kind: str, field: str, how: str) -> None:
    message = {**VP}
    if how == "removed":
        del message[field]
    else:
        message[field] = {
            "nulled": None,
            "retyped": {"not": ["this"]},
            "huge": 10**400 if not isinstance(VP[field], str) else "9" * 10**6,
        }[how]
    done = many(raw({kind: message}), raw())
    assert sum(len(frame) for _, frame in done.rows) + len(done.rejects) == 2
    assert all(reject.reason.split()[0] in ("no", "wrong", "malformed") for reject in done.rejects)


@pytest.mark.recordings
def test_all_messages_of_the_recorded_hour_are_understood(recordings: Path) -> None:
    with Recording(recordings / "hsl-2020-09-21.jsonl.gz", speed="max") as connector:
        batch = connector.poll(limit=10_000, wait=0)
    assert batch is not None
    done = Hsl().process_many(batch)
    rows = {topic.name: frame for topic, frame in done.rows}
    assert {name: len(frame) for name, frame in rows.items()} == {
        "input.vehicle-positions": 4_956, "input.arrivals": 34, "input.departures": 41,
        "input.door-events": 64, "input.vehicle-events": 138,
    }  # fmt: skip
    assert Counter(rows["input.vehicle-events"]["kind"]) == {
        "ARR": 45,
        "DUE": 44,
        "PDE": 31,
        "PAS": 10,
        "VJA": 3,
        "WAIT": 3,
        "VJOUT": 2,
    }
    assert rows["input.door-events"]["open"].sum() == 32
    assert Counter(reject.reason for reject in done.rejects) == {"no position": 4}
    assert not done.skipped
    assert set(rows["input.vehicle-positions"]["vehicle_id"]) == {"40/456", "12/1315"}
