"""Vehicle positions of GTFS Realtime, as protobuf or as GeoJSON; a message may hold one vehicle or all of a
city.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from math import isfinite
from typing import Annotated, Any, Literal

import msgspec
from google.protobuf.message import DecodeError

from millrace.ingest.contract import (
    Event,
    MessageBatch,
    MessageProcessor,
    MessageRejected,
    ProcessedBatch,
    RawMessage,
    Reject,
    build_frame,
)
from millrace.ingest.processors.gtfs_realtime_pb2 import FeedEntity, FeedMessage
from millrace.transit.topics import POSITIONS

_MAX_TEXT = 100
_STOPPED_AT = 1


class _Vehicle(msgspec.Struct):
    """One vehicle under the names of the specification: the `properties` of a GeoJSON feature."""

    vehicle_id: str | int | None = None
    timestamp: float | Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    bearing: float | None = None
    speed: float | None = None
    odometer: float | None = None
    route_id: str | None = None
    direction_id: int | None = None
    start_date: str | None = None
    start_time: str | None = None
    stop_id: str | None = None
    current_status: int | Literal["INCOMING_AT", "STOPPED_AT", "IN_TRANSIT_TO"] | None = None


class _Point(msgspec.Struct):
    type: Literal["Point"]
    coordinates: Annotated[list[float], msgspec.Meta(min_length=2, max_length=3)]


class _Feature(msgspec.Struct):
    type: Literal["Feature"]
    geometry: _Point
    properties: _Vehicle
    id: str | int | None = None


class _Document(msgspec.Struct):
    type: Literal["Feature", "FeatureCollection"]
    features: list[msgspec.Raw] = []


_decode_json = msgspec.json.Decoder(_Document).decode
_decode_feature = msgspec.json.Decoder(_Feature).decode

_ReadVehicle = Callable[[], Event | None]
"""Makes an event of one vehicle of a message; None for an entity of another kind."""


class GtfsRt(MessageProcessor):
    """Positions. Where the topic is one of Digitransit's (`/gtfsrt/vp/<feed>/…`), the feed is the operator
    and part of a vehicle's identity.
    """

    topics = (POSITIONS,)
    filters = ("/gtfsrt/vp/#",)

    def process(self, raw: RawMessage) -> Event | None:
        """The event of the first vehicle of a message; `process_many` handles all."""
        for _, read in _split_vehicles(raw):
            return read()
        return None

    def process_many(self, batch: MessageBatch) -> ProcessedBatch:
        """Handles every vehicle by itself. One that is not understood becomes a dead letter; the others of
        its message do not.
        """
        events: list[tuple[RawMessage, Event]] = []
        rejects: list[Reject] = []
        skipped: Counter[str] = Counter()
        for raw in batch:
            part, is_empty = raw, True
            try:
                for part, read in _split_vehicles(raw):
                    is_empty = False
                    try:
                        event = read()
                        if event is None:
                            skipped["no vehicle position"] += 1
                        else:
                            events.append(
                                (part, event._replace(event_time=batch.event_time(event.event_time)))
                            )
                    except _EXPECTED_ERRORS as error:
                        rejects.append(_reject(error, part))
                skipped.update(["empty feed"] if is_empty else [])
            except _EXPECTED_ERRORS as error:
                rejects.append(_reject(error, raw))
        rows = [(POSITIONS, build_frame(events, rejects))] if events else []
        return ProcessedBatch([(topic, frame) for topic, frame in rows if len(frame)], rejects, skipped)


_EXPECTED_ERRORS = (
    MessageRejected,
    DecodeError,
    msgspec.MsgspecError,
    UnicodeError,
    RecursionError,
    OverflowError,
    ValueError,
)


def _reject(error: Exception, raw: RawMessage) -> Reject:
    if isinstance(error, MessageRejected):
        return Reject(error.reason, error.detail, raw)
    return Reject(
        "wrong type" if isinstance(error, msgspec.ValidationError) else "malformed",
        str(error) or type(error).__name__,
        raw,
    )


def _split_vehicles(raw: RawMessage) -> Iterator[tuple[RawMessage, _ReadVehicle]]:
    """Each vehicle of a message as a message of its own, with the function that reads it."""
    operator = _operator(raw.topic)
    if raw.payload.lstrip()[:1] == b"{":
        document = _decode_json(raw.payload)
        parts = [raw.payload] if document.type == "Feature" else [bytes(part) for part in document.features]
        for number, part in enumerate(parts):
            yield _part_message(raw, part, number), lambda part=part: _event_from_feature(part, operator)  # type: ignore[misc]  # bound at once
        return
    feed = FeedMessage.FromString(raw.payload)
    if not feed.entity and not feed.header.HasField("timestamp"):
        raise MessageRejected("malformed", "neither GeoJSON nor a feed message of GTFS Realtime")
    for number, entity in enumerate(feed.entity):
        part = (
            raw.payload
            if len(feed.entity) == 1
            else FeedMessage(header=feed.header, entity=[entity]).SerializeToString()
        )
        yield (
            _part_message(raw, part, number),
            lambda entity=entity: _event_from_entity(entity, feed.header.timestamp, operator),  # type: ignore[misc]
        )


def _part_message(raw: RawMessage, payload: bytes, number: int) -> RawMessage:
    return (
        raw
        if payload is raw.payload
        else RawMessage(raw.topic, payload, raw.received, f"{raw.origin}#{number}")
    )


def _operator(topic: str) -> str:
    parts = topic.split("/", 4)
    return parts[3][:_MAX_TEXT] if len(parts) > 3 and parts[1:3] == ["gtfsrt", "vp"] else ""


def _event_from_entity(entity: FeedEntity, published: int, operator: str) -> Event | None:
    if not entity.HasField("vehicle") or entity.is_deleted:
        return None
    report = entity.vehicle
    if not report.HasField("position"):
        raise MessageRejected("no position", f"entity {entity.id[:_MAX_TEXT]!r}")
    position, trip = report.position, report.trip
    vehicle = _Vehicle(
        vehicle_id=report.vehicle.id or report.vehicle.label or entity.id,
        timestamp=report.timestamp or published or None,
        current_status=report.current_status,
        **{
            name: getattr(position, name)
            for name in ("bearing", "speed", "odometer")
            if position.HasField(name)
        },
        **{
            name: getattr(trip, name)
            for name in ("start_time", "start_date", "route_id", "direction_id")
            if trip.HasField(name)
        },
        stop_id=report.stop_id or None,
    )
    return _build_event(vehicle, position.latitude, position.longitude, operator)


def _event_from_feature(payload: bytes, operator: str) -> Event:
    feature = _decode_feature(payload)
    longitude, latitude = feature.geometry.coordinates[:2]
    vehicle = feature.properties
    vehicle.vehicle_id = feature.id if vehicle.vehicle_id is None else vehicle.vehicle_id
    return _build_event(vehicle, latitude, longitude, operator)


def _build_event(vehicle: _Vehicle, latitude: float, longitude: float, operator: str) -> Event:
    name = "" if vehicle.vehicle_id is None else str(vehicle.vehicle_id)
    if not name:
        raise MessageRejected("no vehicle_id", "vehicle, entity and feature have none")
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180) or latitude == longitude == 0:
        raise MessageRejected("impossible position", f"latitude={latitude}, longitude={longitude}")
    stop, is_at_stop = _text(vehicle, "stop_id"), vehicle.current_status in (_STOPPED_AT, "STOPPED_AT")
    details: dict[str, Any] = {
        "vehicle_id": _check_length("vehicle_id", f"{operator}/{name}" if operator else name),
        "operator": operator,
        "latitude": latitude,
        "longitude": longitude,
        "heading": _number(vehicle, "bearing"),
        "speed": _number(vehicle, "speed"),
        "odometer": _number(vehicle, "odometer"),
        "route": _text(vehicle, "route_id"),
        "direction": _direction(vehicle.direction_id),
        "trip_day": _format_day(_text(vehicle, "start_date")),
        "trip_start": (_text(vehicle, "start_time") or "")[:5] or None,
        "stop": stop if is_at_stop else None,
        "next_stop": None if is_at_stop else stop,
    }
    return Event(POSITIONS, _event_time(vehicle.timestamp), details)


def _event_time(timestamp: float | datetime | None) -> int:
    seconds = timestamp.timestamp() if isinstance(timestamp, datetime) else timestamp
    if seconds is None or not isfinite(seconds):
        raise MessageRejected("no timestamp", "vehicle and feed have none")
    return round(seconds * 1000)


def _direction(direction_id: int | None) -> int | None:
    if direction_id not in (None, 0, 1):
        raise MessageRejected("wrong direction_id", f"{str(direction_id)[:_MAX_TEXT]}; it is 0 or 1")
    return None if direction_id is None else direction_id + 1


def _format_day(text: str | None) -> str | None:
    return f"{text[:4]}-{text[4:6]}-{text[6:]}" if text and len(text) == 8 and text.isdigit() else text


def _text(vehicle: _Vehicle, name: str) -> str | None:
    value: str | None = getattr(vehicle, name)
    return _check_length(name, value) if value else None


def _check_length(name: str, text: str) -> str:
    if len(text) > _MAX_TEXT:
        raise MessageRejected(f"wrong {name}", f"{len(text)} characters; no more than {_MAX_TEXT} are taken")
    return text


def _number(vehicle: _Vehicle, name: str) -> float | None:
    value: float | None = getattr(vehicle, name)
    if value is not None and not isfinite(value):
        raise MessageRejected(f"wrong {name}", str(value))
    return value
