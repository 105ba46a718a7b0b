"""Vehicle positions of GTFS Realtime, as protobuf or as GeoJSON; a message may hold one vehicle or all of a city."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from math import isfinite
from typing import Annotated, Any, Literal

import msgspec
from google.protobuf.message import DecodeError

from millrace.ingest.contract import Batch, Event, Processed, Processor, Raw, Reject, Rejected, framed
from millrace.ingest.processors.gtfs_realtime_pb2 import FeedEntity, FeedMessage
from millrace.transit.topics import POSITIONS

_LONGEST = 100
_STOPPED = 1


class _Vehicle(msgspec.Struct):
    """What is said of one vehicle, under the specification's names: the `properties` of a GeoJSON feature."""

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


class _Json(msgspec.Struct):
    type: Literal["Feature", "FeatureCollection"]
    features: list[msgspec.Raw] = []


_json = msgspec.json.Decoder(_Json).decode
_feature = msgspec.json.Decoder(_Feature).decode

_Read = Callable[[], Event | None]
"""Understands one vehicle of a message; None: an entity of another kind."""


class GtfsRt(Processor):
    """Positions. Where the topic is one of Digitransit's (`/gtfsrt/vp/<feed>/…`), the feed is the operator and part of a vehicle's identity."""

    topics = (POSITIONS,)
    filters = ("/gtfsrt/vp/#",)

    def process(self, raw: Raw) -> Event | None:
        """The first vehicle of a message; `process_many` takes them all."""
        for _, read in _vehicles(raw):
            return read()
        return None

    def process_many(self, batch: Batch) -> Processed:
        """Every vehicle by itself: one that cannot be understood becomes a dead letter and leaves the others of its message alone."""
        found: list[tuple[Raw, Event]] = []
        rejects: list[Reject] = []
        passed: Counter[str] = Counter()
        for raw in batch:
            part, is_empty = raw, True
            try:
                for part, read in _vehicles(raw):
                    is_empty = False
                    try:
                        event = read()
                        if event is None:
                            passed["no vehicle position"] += 1
                        else:
                            found.append(
                                (part, event._replace(event_time=batch.event_time(event.event_time)))
                            )
                    except _REFUSALS as error:
                        rejects.append(_reject(error, part))
                passed.update(["empty feed"] if is_empty else [])
            except _REFUSALS as error:
                rejects.append(_reject(error, raw))
        rows = [(POSITIONS, framed(found, rejects))] if found else []
        return Processed([(topic, frame) for topic, frame in rows if len(frame)], rejects, passed)


_REFUSALS = (
    Rejected,
    DecodeError,
    msgspec.MsgspecError,
    UnicodeError,
    RecursionError,
    OverflowError,
    ValueError,
)


def _reject(error: Exception, raw: Raw) -> Reject:
    if isinstance(error, Rejected):
        return Reject(error.reason, error.detail, raw)
    return Reject(
        "wrong type" if isinstance(error, msgspec.ValidationError) else "malformed",
        str(error) or type(error).__name__,
        raw,
    )


def _vehicles(raw: Raw) -> Iterator[tuple[Raw, _Read]]:
    """Each vehicle of a message as a message of its own, and what understands it."""
    operator = _operator(raw.topic)
    if raw.payload.lstrip()[:1] == b"{":
        told = _json(raw.payload)
        parts = [raw.payload] if told.type == "Feature" else [bytes(part) for part in told.features]
        for number, part in enumerate(parts):
            yield _part(raw, part, number), lambda part=part: _of_feature(part, operator)  # type: ignore[misc]  # bound at once
        return
    feed = FeedMessage.FromString(raw.payload)
    if not feed.entity and not feed.header.HasField("timestamp"):
        raise Rejected("malformed", "neither GeoJSON nor a feed message of GTFS Realtime")
    for number, entity in enumerate(feed.entity):
        part = (
            raw.payload
            if len(feed.entity) == 1
            else FeedMessage(header=feed.header, entity=[entity]).SerializeToString()
        )
        yield (
            _part(raw, part, number),
            lambda entity=entity: _of_entity(entity, feed.header.timestamp, operator),  # type: ignore[misc]
        )


def _part(raw: Raw, payload: bytes, number: int) -> Raw:
    return raw if payload is raw.payload else Raw(raw.topic, payload, raw.received, f"{raw.origin}#{number}")


def _operator(topic: str) -> str:
    parts = topic.split("/", 4)
    return parts[3][:_LONGEST] if len(parts) > 3 and parts[1:3] == ["gtfsrt", "vp"] else ""


def _of_entity(entity: FeedEntity, published: int, operator: str) -> Event | None:
    if not entity.HasField("vehicle") or entity.is_deleted:
        return None
    said = entity.vehicle
    if not said.HasField("position"):
        raise Rejected("no position", f"entity {entity.id[:_LONGEST]!r}")
    place, trip = said.position, said.trip
    vehicle = _Vehicle(
        vehicle_id=said.vehicle.id or said.vehicle.label or entity.id,
        timestamp=said.timestamp or published or None,
        current_status=said.current_status,
        **{name: getattr(place, name) for name in ("bearing", "speed", "odometer") if place.HasField(name)},
        **{
            name: getattr(trip, name)
            for name in ("start_time", "start_date", "route_id", "direction_id")
            if trip.HasField(name)
        },
        stop_id=said.stop_id or None,
    )
    return _event(vehicle, place.latitude, place.longitude, operator)


def _of_feature(payload: bytes, operator: str) -> Event:
    feature = _feature(payload)
    longitude, latitude = feature.geometry.coordinates[:2]
    vehicle = feature.properties
    vehicle.vehicle_id = feature.id if vehicle.vehicle_id is None else vehicle.vehicle_id
    return _event(vehicle, latitude, longitude, operator)


def _event(vehicle: _Vehicle, latitude: float, longitude: float, operator: str) -> Event:
    name = "" if vehicle.vehicle_id is None else str(vehicle.vehicle_id)
    if not name:
        raise Rejected("no vehicle_id", "neither the vehicle nor its entity or feature has one")
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180) or latitude == longitude == 0:
        raise Rejected("impossible position", f"latitude={latitude}, longitude={longitude}")
    stop, there = _text(vehicle, "stop_id"), vehicle.current_status in (_STOPPED, "STOPPED_AT")
    details: dict[str, Any] = {
        "vehicle_id": _short("vehicle_id", f"{operator}/{name}" if operator else name),
        "operator": operator,
        "latitude": latitude,
        "longitude": longitude,
        "heading": _number(vehicle, "bearing"),
        "speed": _number(vehicle, "speed"),
        "odometer": _number(vehicle, "odometer"),
        "route": _text(vehicle, "route_id"),
        "direction": _direction(vehicle.direction_id),
        "trip_day": _day(_text(vehicle, "start_date")),
        "trip_start": (_text(vehicle, "start_time") or "")[:5] or None,
        "stop": stop if there else None,
        "next_stop": None if there else stop,
    }
    return Event(POSITIONS, _time(vehicle.timestamp), details)


def _time(said: float | datetime | None) -> int:
    seconds = said.timestamp() if isinstance(said, datetime) else said
    if seconds is None or not isfinite(seconds):
        raise Rejected("no timestamp", "neither the vehicle nor the feed says when")
    return round(seconds * 1000)


def _direction(said: int | None) -> int | None:
    if said not in (None, 0, 1):
        raise Rejected("wrong direction_id", f"{str(said)[:_LONGEST]}; it is 0 or 1")
    return None if said is None else said + 1


def _day(said: str | None) -> str | None:
    return f"{said[:4]}-{said[4:6]}-{said[6:]}" if said and len(said) == 8 and said.isdigit() else said


def _text(vehicle: _Vehicle, name: str) -> str | None:
    said: str | None = getattr(vehicle, name)
    return _short(name, said) if said else None


def _short(name: str, said: str) -> str:
    if len(said) > _LONGEST:
        raise Rejected(f"wrong {name}", f"{len(said)} characters; no more than {_LONGEST} are taken")
    return said


def _number(vehicle: _Vehicle, name: str) -> float | None:
    said: float | None = getattr(vehicle, name)
    if said is not None and not isfinite(said):
        raise Rejected(f"wrong {name}", str(said))
    return said
