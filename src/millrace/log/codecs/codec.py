"""Rows of a topic to records and back. What cannot be read becomes a dead letter; its neighbours are read all the same."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor
from numpy.typing import NDArray

from millrace import durations
from millrace import panes as pane_columns
from millrace.errors import DefinitionError
from millrace.log import tombstones
from millrace.log.codecs import avro, binary, confluent, event_pb2, json_lines, json_records
from millrace.log.contract import BinaryArray, Outgoing, Records
from millrace.log.dead import DEAD, legible
from millrace.topics import Topic
from millrace.values import event_types

FIRST, LAST = durations.FIRST, durations.LAST
"""The times that a protobuf Timestamp can hold: the years 1 to 9999."""

_URL = "type.googleapis.com/"
_STAMP = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, eq=False)
class Decoded:
    """What one range of a partition held, in offset order."""

    rows: pl.DataFrame
    """The columns of the type, `event_time`, `ingestion_time` and `_off`; with `panes`, those of panes too."""
    dead: pl.DataFrame
    """What could not be read, in the `DEAD` schema."""


def encode(topic: Topic, frame: pl.DataFrame, *, ingestion_time: int | None = None) -> Outgoing:
    """The records of rows. Pane columns, if there are any, go into the envelope; where the topic has tombstones, what is withdrawn is one."""
    records = _encoded(topic, frame, ingestion_time)
    return tombstones.buried(frame, records) if topic.tombstones else records


def _encoded(topic: Topic, frame: pl.DataFrame, ingestion_time: int | None) -> Outgoing:
    who = f"topic {topic.name!r}"
    if topic.readable_only:
        raise DefinitionError(
            f"{who} is one that others write; millrace reads Avro and Confluent's header, and writes neither"
        )
    handler = binary.handler(topic.type)
    batch = binary.to_batch(handler, frame, who)
    _refuse_stamps(batch, who)
    keys = None if topic.key is None else _keys(batch.column(topic.key))
    times = _times(frame, ingestion_time, who) if topic.envelope else None
    if topic.codec == "json" and json_lines.is_flat(handler.descriptor):
        return Outgoing(pa.array(_lines(topic, handler, batch, times), pa.binary()), keys)
    values = handler.serialize(batch)
    if times is not None:
        values = binary.envelope().serialize(_sealed(topic, values, times))
    if topic.codec == "json":
        values = pa.array(json_records.to_json(topic, values.to_pylist()), pa.binary())
    return Outgoing(values, keys)


def decode(
    topic: Topic,
    partition: int,
    records: Records,
    *,
    panes: bool = False,
    wanted: frozenset[str] | None = None,
) -> Decoded:
    """The rows of records, and the records that hold none. With `wanted`, rows have those columns of their type alone; all are read."""
    if topic.compact and records.values.null_count:  # those without a value only say that a key is gone
        found = decode(topic, partition, records.valued(), panes=panes, wanted=wanted)
        if not topic.tombstones:
            return found
        return Decoded(
            pl.concat([found.rows, tombstones.rows(topic, records, found.rows)]).sort("_off"), found.dead
        )
    if not len(records):
        return Decoded(_no_rows(topic, panes), _no_dead())
    sieve = _Sieve(records)
    values = records.values
    if topic.confluent:
        values, bad = confluent.without_header(values, indexed=topic.codec == "binary")
        sieve.drop(bad)
    if topic.codec != "binary":
        made, bad = (avro if topic.codec == "avro" else json_records).to_binary(topic, values.to_pylist())
        sieve.drop(bad)
        values = pa.array(made, pa.binary())
    columns = _open(topic, sieve, values, panes) if topic.envelope else _plain(topic, sieve, values)
    fields = [name for name in topic.schema if wanted is None or name in wanted]
    rows = sieve.rows(
        columns, [*fields, "event_time", "ingestion_time", *(pane_columns.COLUMNS if panes else ())]
    )
    return Decoded(rows, sieve.dead(topic.name, partition))


class _Sieve:
    """Remembers which records turned out to be unreadable, and why. A record's first reason counts."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.reasons: dict[int, str] = {}
        lengths = np.diff(
            np.frombuffer(records.values.buffers()[1], np.int32)[
                records.values.offset : records.values.offset + len(records) + 1
            ]
        )
        if records.values.null_count or not lengths.all():
            self.drop(
                dict.fromkeys(
                    np.flatnonzero(
                        (lengths == 0) | records.values.is_null().to_numpy(zero_copy_only=False)
                    ).tolist(),
                    "empty",
                )
            )

    def drop(self, reasons: dict[int, str]) -> None:
        for place, reason in reasons.items():
            self.reasons.setdefault(place, reason)

    def drop_where(self, mask: NDArray[np.bool_], reason: str) -> None:
        self.drop(dict.fromkeys(np.flatnonzero(mask).tolist(), reason))

    def rows(self, columns: dict[str, Any], order: list[str]) -> pl.DataFrame:
        columns["_off"] = pa.array(self.records.offsets)
        batch = pa.RecordBatch.from_arrays(
            [columns[name] for name in (*order, "_off")], names=[*order, "_off"]
        )
        if self.reasons:
            keep = np.ones(len(self.records), np.bool_)
            keep[list(self.reasons)] = False
            batch = batch.filter(pa.array(keep))
        return _frame(batch)

    def dead(self, topic: str, partition: int) -> pl.DataFrame:
        if not self.reasons:
            return _no_dead()
        places = sorted(self.reasons)
        records, take = self.records, pa.array(places)
        return pl.DataFrame(
            {
                "topic": [topic] * len(places),
                "partition": [partition] * len(places),
                "offset": records.offsets[places],
                "timestamp": records.timestamps[places],
                "key": records.keys.take(take).to_pylist(),
                "value": records.values.take(take).to_pylist(),
                "reason": [legible(self.reasons[place]) for place in places],
            },
            schema=DEAD,
        )


def _open(topic: Topic, sieve: _Sieve, values: BinaryArray, panes: bool) -> dict[str, Any]:
    """The columns of records with an envelope."""
    events, bad = binary.envelope().parse(values)
    sieve.drop({place: f"not a millrace.Event: {reason}" for place, reason in bad.items()})
    details = events.column("details")
    _check_type(topic, sieve, details.field("type_url"))
    fields, bad = binary.handler(topic.type).parse(details.field("value"))
    sieve.drop({place: f"not a {topic.type_name}: {reason}" for place, reason in bad.items()})
    columns: dict[str, Any] = dict(zip(fields.schema.names, fields.columns, strict=True))
    _check_stamps(sieve, columns)
    columns["event_time"] = _event_times(sieve, events.column("event_timestamp").view(pa.int64()))
    ingested = events.column("ingestion_timestamp").view(pa.int64())
    columns["ingestion_time"] = (
        pc.coalesce(ingested, pa.array(sieve.records.timestamps)) if ingested.null_count else ingested
    )
    if panes:
        pane = events.column("pane")
        flat = pane.flatten() if pane.null_count else [pane.field(name) for name in pane_columns.COLUMNS]
        columns |= dict(zip(pane_columns.COLUMNS, flat, strict=True))
    return columns


def _plain(topic: Topic, sieve: _Sieve, values: BinaryArray) -> dict[str, Any]:
    """The columns of records that millrace did not write."""
    fields, bad = binary.handler(topic.type).parse(values)
    sieve.drop({place: f"not a {topic.type_name}: {reason}" for place, reason in bad.items()})
    columns: dict[str, Any] = dict(zip(fields.schema.names, fields.columns, strict=True))
    _check_stamps(sieve, columns)
    times = columns[str(topic.time)]
    if pa.types.is_string(times.type):
        times = pa.array([_iso(text) for text in times.to_pylist()], pa.int64())
    elif pa.types.is_timestamp(times.type):
        times = times.view(pa.int64())
    elif (
        topic.codec == "binary"
        and not event_types.descriptor(topic.type).fields_by_name[str(topic.time)].has_presence
    ):
        times = pc.if_else(
            pc.equal(times, 0), None, times
        )  # protobuf leaves a zero out, so it is a field that is absent
    columns["event_time"] = _event_times(sieve, times.cast(pa.int64(), safe=False))
    columns["ingestion_time"] = pa.array(sieve.records.timestamps)
    columns |= {name: pa.nulls(len(times), _ARROW_PANES[name]) for name in pane_columns.COLUMNS}
    return columns


def _check_type(topic: Topic, sieve: _Sieve, urls: Any) -> None:
    expected = _URL + topic.type_name
    if pc.all(pc.equal(urls, expected)).as_py():
        return
    for place, url in enumerate(urls.to_pylist()):
        if url.rpartition("/")[2] != topic.type_name:
            sieve.drop({place: f"holds {url.rpartition('/')[2] or 'no details'}, not {topic.type_name}"})


def _event_times(sieve: _Sieve, times: Any) -> Any:
    if times.null_count:
        sieve.drop_where(times.is_null().to_numpy(zero_copy_only=False), "has no event time")
        times = times.fill_null(0)
    values = times.to_numpy()
    if values.min() < FIRST or values.max() > LAST:
        sieve.drop_where((values < FIRST) | (values > LAST), "event time is outside the years 1 to 9999")
    return times


def _check_stamps(sieve: _Sieve, columns: dict[str, Any]) -> None:
    """Sets records aside whose timestamps polars and Python have no dates for; to read one would end the process."""
    for name, column in columns.items():
        for places in _out_of_range(column):
            sieve.drop(dict.fromkeys(places.tolist(), f"{name} is outside the years 1 to 9999"))


def _refuse_stamps(batch: Any, who: str) -> None:
    """Refuses timestamps that no reader could take."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for places in _out_of_range(column):
            raise DefinitionError(
                f"{who}: column {name!r} holds times outside the years 1 to 9999, first in row {places[0]}; set such rows aside before they are written"
            )


def _out_of_range(column: Any) -> Iterator[NDArray[np.int64]]:
    """The places of values that hold a timestamp out of range, at any depth."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        times = column.view(pa.int64())
        bounds = pc.min_max(times).as_py()
        if bounds["min"] is not None and (bounds["min"] < FIRST or bounds["max"] > LAST):
            values = times.fill_null(0).to_numpy()
            if (places := np.flatnonzero((values < FIRST) | (values > LAST))).size:
                yield places
    elif pa.types.is_struct(kind):
        for inner in column.flatten():
            yield from _out_of_range(inner)
    elif pa.types.is_map(kind):
        yield from _out_of_range(
            column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        )
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parents = pc.list_parent_indices(column).to_numpy()
        for places in _out_of_range(pc.list_flatten(column)):
            yield np.unique(parents[places])


def _iso(text: str | None) -> int | None:
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _times(frame: pl.DataFrame, ingestion_time: int | None, who: str) -> tuple[Any, Any, Any]:
    """What the envelope holds besides the details: event time, ingestion time, pane."""
    if "event_time" not in frame.columns:
        raise DefinitionError(f"{who}: the rows lack event_time, without which they have no place in time")
    count = len(frame)
    if ingestion_time is not None:
        ingested = pa.repeat(pa.scalar(ingestion_time, pa.int64()), count).view(_STAMP)
    elif "ingestion_time" in frame.columns:
        ingested = _stamps(frame["ingestion_time"], who, optional=True)
    else:
        ingested = pa.nulls(count, _STAMP)
    return (
        _stamps(frame["event_time"], who),
        ingested,
        _panes(frame, binary.envelope().schema.field("pane").type, who),
    )


def _sealed(topic: Topic, values: BinaryArray, times: tuple[Any, Any, Any]) -> Any:
    schema = binary.envelope().schema
    details = pa.StructArray.from_arrays(
        [pa.repeat(_URL + topic.type_name, len(values)), values], fields=list(schema.field("details").type)
    )
    stamps, ingested, pane = times
    return pa.RecordBatch.from_arrays([stamps, ingested, details, pane], names=schema.names)


def _lines(
    topic: Topic, handler: binary.Handler, batch: Any, times: tuple[Any, Any, Any] | None
) -> list[bytes]:
    if times is None:
        return json_lines.lines(json_lines.objects(handler.descriptor, batch))
    details = json_lines.objects(handler.descriptor, batch, first=f'"@type": "{_URL}{topic.type_name}"')
    stamps, ingested, pane = times
    return json_lines.events(
        stamps, ingested, details, json_lines.panes(cast("Descriptor", event_pb2.Pane.DESCRIPTOR), pane)
    )


def _stamps(times: pl.Series, who: str, *, optional: bool = False) -> Any:
    array = times.cast(pl.Int64).rechunk().to_arrow()
    if array.null_count and not optional:
        raise DefinitionError(
            f"{who}: {array.null_count} rows have no {times.name}, without which they have no place in time; filter them out or fill it"
        )
    bounds = pc.min_max(array).as_py()
    first, last = bounds["min"], bounds["max"]
    if first is not None and (first < FIRST or last > LAST):
        raise DefinitionError(
            f"{who}: {times.name} from {first} to {last} ms is outside the years 1 to 9999; set such rows aside before they are written"
        )
    return array.view(_STAMP)


def _panes(frame: pl.DataFrame, kind: Any, who: str) -> Any:
    present = [name for name in pane_columns.COLUMNS if name in frame.columns]
    if not present:
        return pa.nulls(len(frame), kind)
    if len(present) < len(pane_columns.COLUMNS):
        lacks = [name for name in pane_columns.COLUMNS if name not in present]
        raise DefinitionError(
            f"{who}: the rows have pane columns {', '.join(present)}, but lack {', '.join(lacks)}"
        )
    table = (
        frame.select(*pane_columns.COLUMNS)
        .cast(pl.Schema(pane_columns.COLUMNS))
        .to_arrow(compat_level=pl.CompatLevel.oldest())
        .cast(pa.schema(list(kind)))
    )
    return table.combine_chunks().to_batches()[0].to_struct_array() if len(frame) else pa.array([], kind)


def _keys(column: Any) -> BinaryArray:
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    if pa.types.is_binary(column.type):
        return column
    return column.cast(pa.string()).view(pa.binary())


def _frame(batch: Any) -> pl.DataFrame:
    made = pl.from_arrow(batch)
    assert isinstance(made, pl.DataFrame)
    return made


_ARROW_PANES = {
    "window_start": pa.int64(),
    "window_end": pa.int64(),
    "index": pa.int64(),
    "settled_index": pa.int64(),
    "timing": pa.string(),
    "final": pa.bool_(),
    "op": pa.string(),
}


@lru_cache(maxsize=512)
def _no_rows_of(kind: type, columns: tuple[str, ...]) -> pl.DataFrame:
    added: dict[str, Any] = {"event_time": pl.Int64, "ingestion_time": pl.Int64}
    added |= {**{name: pane_columns.COLUMNS[name] for name in columns}, "_off": pl.Int64}
    return pl.DataFrame(schema={**event_types.columns(kind), **added})


def _no_rows(topic: Topic, panes: bool) -> pl.DataFrame:
    return _no_rows_of(topic.type, tuple(pane_columns.COLUMNS) if panes else ())


@lru_cache(maxsize=1)
def _no_dead() -> pl.DataFrame:
    return pl.DataFrame(schema=DEAD)
