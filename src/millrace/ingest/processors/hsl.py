"""Helsinki Region Transport's vehicle messages (HFP v2): JSON with one key, the event type."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import msgspec
import polars as pl

from millrace.ingest.contract import Batch, Event, Processed, Processor, Raw, Reject, Rejected
from millrace.transit.topics import POSITIONS

EVENT_TYPES = frozenset({
    "VP", "DUE", "ARR", "DEP", "ARS", "PDE", "PAS", "WAIT", "DOO", "DOC", "TLR", "TLA", "DA", "DOUT", "BA", "BOUT", "VJA", "VJOUT",
})  # fmt: skip
"""All that HFP v2 knows; only VP, the vehicle's position, is turned into events as yet."""

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Seconds: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31) + 1, le=2**31 - 1)]
_Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=100)]


class _Position(msgspec.Struct, gc=False):
    """What VP says, under HFP's own names. Fields not named here are passed over, whatever they hold."""

    oper: _Number
    veh: _Number
    tst: Annotated[datetime, msgspec.Meta(tz=True)]
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


class _Message(msgspec.Struct, gc=False):
    VP: _Position | msgspec.UnsetType = msgspec.UNSET


_decode = msgspec.json.Decoder(_Message).decode
_keys = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Hsl(Processor):
    """Vehicle positions. A vehicle is told apart by operator and number, since numbers repeat between operators."""

    topics = (POSITIONS,)

    def process(self, raw: Raw) -> Event | None:
        """One message by itself: what `process_many` makes of it."""
        done = self.process_many(Batch([raw.topic], [raw.payload], [raw.received], [0]))
        for reject in done.rejects:
            raise Rejected(reject.reason, reject.detail)
        for topic, frame in done.rows:
            details = frame.row(0, named=True)
            details.pop("ingestion_time")
            return Event(topic, details.pop("event_time"), details)
        return None

    def process_many(self, batch: Batch) -> Processed:
        """Vehicle positions as columns; other types of event are counted and passed over."""
        found: list[_Position] = []
        times: list[int] = []
        places: list[int] = []
        rejects: list[Reject] = []
        passed: Counter[str] = Counter()
        for place, payload in enumerate(batch.payloads):
            try:
                position = _decode(payload).VP
                if isinstance(position, _Position):
                    _check(position)
                    times.append(batch.event_time(round(position.tst.timestamp() * 1000)))
                    found.append(position)
                    places.append(place)
                else:
                    passed[_other_type(payload)] += 1
            except Rejected as rejected:
                rejects.append(Reject(rejected.reason, rejected.detail, batch[place]))
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                rejects.append(Reject(_reason(error), str(error), batch[place]))
        if not found:
            return Processed((), rejects, passed)
        rows = _columns(found, [batch.topics[i] for i in places]).with_columns(
            event_time=pl.Series(times, dtype=pl.Int64), ingestion_time=pl.Series([batch.received[i] for i in places], dtype=pl.Int64)
        )
        return Processed([(POSITIONS, rows)], rejects, passed)


def _check(position: _Position) -> None:
    """Refuses a vehicle that is nowhere, or where no vehicle can be; (0, 0) is what a receiver without a fix reports."""
    latitude, longitude = position.lat, position.long
    if latitude is None or longitude is None:
        raise Rejected("no position", f"lat={latitude}, long={longitude}")
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180) or latitude == longitude == 0:
        raise Rejected("impossible position", f"lat={latitude}, long={longitude}")


def _other_type(payload: bytes) -> str:
    kind = next(iter(_keys(payload)), "")
    if kind not in EVENT_TYPES:
        raise Rejected("unknown event type", f"{kind[:100]!r}; HFP v2 has {', '.join(sorted(EVENT_TYPES))}")
    return kind


_PLACE = re.compile(r" - at `\$\.VP\.?(\w*)")


def _reason(error: Exception) -> str:
    """One of a few for all that can be wrong with JSON and its fields; the error's own text has the rest."""
    if not isinstance(error, msgspec.ValidationError):
        return "malformed"
    text = str(error)
    missing = re.search(r"missing required field `(\w+)`", text)
    place = _PLACE.search(text)
    field = missing[1] if missing else place[1] if place else ""
    if not field:
        return "wrong type"
    nothing = missing or ("got `null`" in text)
    return f"no {field}" if nothing else f"wrong {field}"


def _columns(found: Sequence[_Position], topics: Sequence[str]) -> pl.DataFrame:
    next_stops = {topic: _next_stop(topic) for topic in set(topics)}
    fields = pl.DataFrame(
        {
            "operator": pl.Series([p.oper for p in found], dtype=pl.Int64),
            "vehicle": pl.Series([p.veh for p in found], dtype=pl.Int64),
            "latitude": pl.Series([p.lat for p in found], dtype=pl.Float64),
            "longitude": pl.Series([p.long for p in found], dtype=pl.Float64),
            "heading": pl.Series([p.hdg for p in found], dtype=pl.Float64),
            "speed": pl.Series([p.spd for p in found], dtype=pl.Float64),
            "acceleration": pl.Series([p.acc for p in found], dtype=pl.Float64),
            "ahead": pl.Series([p.dl for p in found], dtype=pl.Int32),
            "odometer": pl.Series([p.odo for p in found], dtype=pl.Float64),
            "doors": pl.Series([p.drst for p in found], dtype=pl.Int8),
            "route": pl.Series([p.route for p in found], dtype=pl.String),
            "direction": pl.Series([p.dir for p in found], dtype=pl.String),
            "trip_day": pl.Series([p.oday for p in found], dtype=pl.String),
            "trip_start": pl.Series([p.start for p in found], dtype=pl.String),
            "stop": pl.Series([p.stop for p in found], dtype=pl.Int64),
            "next_stop": pl.Series([next_stops[topic] for topic in topics], dtype=pl.String),
        }
    )
    return fields.with_columns(
        vehicle_id=pl.format("{}/{}", "operator", "vehicle"),
        operator=pl.col("operator").cast(pl.String),
        delay=-pl.col("ahead"),
        doors_open=pl.col("doors") == 1,
        direction=pl.col("direction").cast(pl.Int32),
        stop=pl.col("stop").cast(pl.String),
    ).select(*POSITIONS.schema)


_NEXT_STOP = 13
"""Its place in `/hfp/v2/journey/<temporal>/<event>/<mode>/<operator>/<vehicle>/<route>/<direction>/<headsign>/<start>/<next_stop>/…`."""


def _next_stop(topic: str) -> str | None:
    parts = topic.split("/", _NEXT_STOP + 1)
    if len(parts) <= _NEXT_STOP or parts[1:3] != ["hfp", "v2"]:
        return None
    stop = parts[_NEXT_STOP]
    return None if stop in ("", "EOL") else stop
