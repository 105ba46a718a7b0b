"""Helsinki Region Transport's vehicle messages (HFP, v2 and v1): JSON with one key, the event type."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
import polars as pl

from millrace.ingest.contract import (
    Event,
    MessageBatch,
    MessageProcessor,
    MessageRejected,
    ProcessedBatch,
    RawMessage,
    Reject,
)
from millrace.topics import Topic
from millrace.transit.topics import ARRIVALS, DEPARTURES, DOOR_EVENTS, POSITIONS, VEHICLE_EVENTS

EVENT_TYPES: dict[str, Topic] = {
    "VP": POSITIONS,
    "ARS": ARRIVALS,  # ARS: it stands at the stop. ARR: it is near, even if it does not stop
    "DEP": DEPARTURES,
    "DOO": DOOR_EVENTS,
    "DOC": DOOR_EVENTS,
    **dict.fromkeys(
        ("DUE", "ARR", "PDE", "PAS", "WAIT", "TLR", "TLA", "DA", "DOUT", "BA", "BOUT", "VJA", "VJOUT"),
        VEHICLE_EVENTS,
    ),
}
"""All event types of HFP, with their topics. Messages of version 1 are all VP."""

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Seconds: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31) + 1, le=2**31 - 1)]
_Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=100)]


class _Report(msgspec.Struct, gc=False):
    """The fields of every event type, under HFP's names. Other fields are ignored, whatever they hold."""

    veh: _Number
    tst: Annotated[datetime, msgspec.Meta(tz=True)]
    oper: _Number | None = None
    lat: float | None = None
    long: float | None = None
    hdg: float | None = None
    spd: float | None = None
    acc: float | None = None
    dl: _Seconds | None = None
    odo: float | None = None
    drst: Literal[0, 1] | None = None
    route: _Text | None = None
    dir: Literal["1", "2"] | None = None
    oday: _Text | None = None
    start: _Text | None = None
    stop: _Number | None = None


_decode: Any = msgspec.json.Decoder(
    msgspec.defstruct(
        "_Message", [(kind, _Report | msgspec.UnsetType, msgspec.UNSET) for kind in EVENT_TYPES], gc=False
    )
).decode
_decode_keys = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Journey(NamedTuple):
    """The parts of an MQTT topic that are used."""

    version: str = ""
    operator: int | None = None
    vehicle: int | None = None
    route: str | None = None
    direction: str | None = None
    next_stop: str | None = None


_OPERATOR_LEVEL = {"v1": 6, "v2": 7}
"""Its place in
`/hfp/v2/journey/<temporal>/<event>/<mode>/<operator>/<vehicle>/<route>/<direction>/<headsign>/<start>/<next_stop>/…`;
version 1 has no `<event>`."""


class _JourneyCache:
    """The topics of a batch; each different one is parsed once."""

    def __init__(self) -> None:
        self._journeys: dict[str, _Journey] = {}

    def get(self, topic: str) -> _Journey:
        """The parts of a topic; all empty for a topic of another form."""
        journey = self._journeys.get(topic)
        if journey is None:
            journey = self._journeys[topic] = _parse_topic(topic)
        return journey


def _parse_topic(topic: str) -> _Journey:
    parts = topic.split("/", 15)
    level = _OPERATOR_LEVEL.get(parts[2]) if len(parts) > 2 and parts[1] == "hfp" else None
    if level is None:
        return _Journey()
    operator, vehicle, route, direction, _, _, stop = [*parts[level : level + 7], *[""] * 7][:7]
    has_vehicle = _is_number(operator) and _is_number(vehicle)
    return _Journey(
        parts[2],
        int(operator) if has_vehicle else None,
        int(vehicle) if has_vehicle else None,
        route if 0 < len(route) <= 100 else None,
        direction if direction in ("1", "2") else None,
        None if stop in ("", "EOL") else stop,
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _route(report: _Report, journey: _Journey) -> str | None:
    """Version 1 names the route only in the topic, version 2 also in the payload."""
    return report.route if journey.version != "v1" or journey.route is None else journey.route


def _direction(report: _Report, journey: _Journey) -> str | None:
    return journey.direction if report.dir is None and journey.version == "v1" else report.dir


class Hsl(MessageProcessor):
    """Events of vehicles: positions, arrivals, departures and doors.

    Vehicle numbers repeat between operators, so operator and number identify a vehicle. Both are taken from
    the topic: `oper` in the payload is the company that runs the trip, which may not be the owner of the
    vehicle.
    """

    topics = (POSITIONS, ARRIVALS, DEPARTURES, DOOR_EVENTS, VEHICLE_EVENTS)
    filters = ("/hfp/v2/journey/#", "/hfp/v1/journey/#")

    def process(self, raw: RawMessage) -> Event | None:
        """Processes one message, by `process_many`."""
        processed = self.process_many(MessageBatch([raw.topic], [raw.payload], [raw.received], [0]))
        for reject in processed.rejects:
            raise MessageRejected(reject.reason, reject.detail)
        for topic, frame in processed.rows:
            details = frame.row(0, named=True)
            details.pop("ingestion_time")
            return Event(topic, details.pop("event_time"), details)
        return None

    def process_many(self, batch: MessageBatch) -> ProcessedBatch:
        """Builds columns of all messages, then divides them by topic."""
        reports: list[tuple[_Report, _Journey]] = []
        kinds: list[str] = []
        times: list[int] = []
        positions: list[int] = []
        rejects: list[Reject] = []
        journeys = _JourneyCache()
        for position, payload in enumerate(batch.payloads):
            try:
                kind, report = _decode_report(payload)
                journey = journeys.get(batch.topics[position])
                _check(report, journey)
                times.append(batch.event_time(round(report.tst.timestamp() * 1000)))
                reports.append((report, journey))
                kinds.append(kind)
                positions.append(position)
            except MessageRejected as rejected:
                rejects.append(Reject(rejected.reason, rejected.detail, batch[position]))
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                rejects.append(Reject(_reason(error), str(error), batch[position]))
        if not reports:
            return ProcessedBatch((), rejects)
        rows = _build_columns(reports).with_columns(
            kind=pl.Series(kinds, dtype=pl.String),
            open=pl.Series([kind == "DOO" for kind in kinds], dtype=pl.Boolean),
            event_time=pl.Series(times, dtype=pl.Int64),
            ingestion_time=pl.Series([batch.received[i] for i in positions], dtype=pl.Int64),
        )
        return ProcessedBatch(
            [(topic, part) for topic in self.topics if len(part := _select_topic(topic, rows))], rejects
        )


def _decode_report(payload: bytes) -> tuple[str, _Report]:
    message = _decode(payload)
    for kind in EVENT_TYPES:
        report = getattr(message, kind)
        if isinstance(report, _Report):
            return kind, report
    unknown = next(iter(_decode_keys(payload)), "")
    raise MessageRejected(
        "unknown event type", f"{unknown[:100]!r}; HFP has {', '.join(sorted(EVENT_TYPES))}"
    )


def _select_topic(topic: Topic, rows: pl.DataFrame) -> pl.DataFrame:
    kinds = [kind for kind, target in EVENT_TYPES.items() if target is topic]
    return rows.filter(pl.col("kind").is_in(kinds)).select(*topic.schema, "event_time", "ingestion_time")


def _check(report: _Report, journey: _Journey) -> None:
    """Refuses vehicles without identity or position, and impossible positions: (0, 0) is a receiver without a
    fix.
    """
    if report.oper is None and journey.operator is None:
        raise MessageRejected(
            "no oper", "neither the payload nor the topic names an operator, so the vehicle is not known"
        )
    latitude, longitude = report.lat, report.long
    if latitude is None or longitude is None:
        raise MessageRejected("no position", f"lat={latitude}, long={longitude}")
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180) or latitude == longitude == 0:
        raise MessageRejected("impossible position", f"lat={latitude}, long={longitude}")


_FIELD_PATH = re.compile(r" - at `\$\.[A-Z]+\.?(\w*)")


def _reason(error: Exception) -> str:
    """The class of a fault in JSON or its fields. The text of the error has the details."""
    if not isinstance(error, msgspec.ValidationError):
        return "malformed"
    text = str(error)
    missing = re.search(r"missing required field `(\w+)`", text)
    path = _FIELD_PATH.search(text)
    field = missing[1] if missing else path[1] if path else ""
    if not field:
        return "wrong type"
    is_missing = missing or ("got `null`" in text)
    return f"no {field}" if is_missing else f"wrong {field}"


def _build_columns(pairs: Sequence[tuple[_Report, _Journey]]) -> pl.DataFrame:
    reports = [report for report, _ in pairs]
    fields = pl.DataFrame(
        {
            "operator": pl.Series(
                [j.operator if p.oper is None else p.oper for p, j in pairs], dtype=pl.Int64
            ),
            "owner": pl.Series(
                [p.oper if j.operator is None else j.operator for p, j in pairs], dtype=pl.Int64
            ),
            "vehicle": pl.Series(
                [p.veh if j.vehicle is None else j.vehicle for p, j in pairs], dtype=pl.Int64
            ),
            "latitude": pl.Series([p.lat for p in reports], dtype=pl.Float64),
            "longitude": pl.Series([p.long for p in reports], dtype=pl.Float64),
            "heading": pl.Series([p.hdg for p in reports], dtype=pl.Float64),
            "speed": pl.Series([p.spd for p in reports], dtype=pl.Float64),
            "acceleration": pl.Series([p.acc for p in reports], dtype=pl.Float64),
            "ahead": pl.Series([p.dl for p in reports], dtype=pl.Int32),
            "odometer": pl.Series([p.odo for p in reports], dtype=pl.Float64),
            "doors": pl.Series([p.drst for p in reports], dtype=pl.Int8),
            "route": pl.Series([_route(p, j) for p, j in pairs], dtype=pl.String),
            "direction": pl.Series([_direction(p, j) for p, j in pairs], dtype=pl.String),
            "trip_day": pl.Series([p.oday for p in reports], dtype=pl.String),
            "trip_start": pl.Series([p.start for p in reports], dtype=pl.String),
            "stop": pl.Series([p.stop for p in reports], dtype=pl.Int64),
            "next_stop": pl.Series([j.next_stop for _, j in pairs], dtype=pl.String),
        }
    )
    return fields.with_columns(
        vehicle_id=pl.format("{}/{}", "owner", "vehicle"),
        operator=pl.col("operator").cast(pl.String),
        delay=-pl.col("ahead"),
        doors_open=pl.col("doors") == 1,
        direction=pl.col("direction").cast(pl.Int32),
        stop=pl.col("stop").cast(pl.String),
    )
