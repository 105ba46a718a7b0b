"""Rows of a topic to records and back. A record that cannot be decoded becomes a dead row; its neighbours are
read all the same.

Dead rows become dead letters in `log.dead_letters`.
"""

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
from millrace.log.codecs.unreadable import UnreadableRecords, no_dead_rows
from millrace.log.contract import BinaryArray, OutgoingRecords, Records
from millrace.topics import Topic
from millrace.values import event_types
from millrace.values.columns import OFFSET

MIN_TIME, MAX_TIME = durations.MIN_TIME, durations.MAX_TIME
"""The times that a protobuf Timestamp can hold: the years 1 to 9999."""

_TYPE_URL = "type.googleapis.com/"
_TIMESTAMP = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, eq=False)
class Decoded:
    """The content of one range of a partition, in offset order."""

    rows: pl.DataFrame
    """The columns of the type, `event_time`, `ingestion_time`, `_off`; with `panes`, those of panes too."""
    dead: pl.DataFrame
    """Records that could not be decoded, as rows of `DEAD_SCHEMA`."""


def encode(topic: Topic, frame: pl.DataFrame, *, ingestion_time: int | None = None) -> OutgoingRecords:
    """The records of rows. Pane columns go into the envelope; retracted rows may be tombstones."""
    topic = topic.typed()
    records = _encode_rows(topic, frame, ingestion_time)
    return tombstones.bury_retractions(frame, records) if topic.tombstones else records


def _encode_rows(topic: Topic, frame: pl.DataFrame, ingestion_time: int | None) -> OutgoingRecords:
    label = f"topic {topic.name!r}"
    if topic.is_read_only:
        raise DefinitionError(
            f"{label} is written by others: millrace reads Avro and Confluent's header, but writes neither; "
            "write to a topic of another codec"
        )
    handler = binary.event_handler(topic.type)
    batch = binary.to_batch(handler, frame, label)
    _refuse_invalid_timestamps(batch, label)
    keys = None if topic.key is None else _key_bytes(batch.column(topic.key))
    times = _envelope_columns(frame, ingestion_time, label) if topic.envelope else None
    if topic.codec == "json" and json_lines.is_flat(handler.descriptor):
        return OutgoingRecords(pa.array(_to_json_lines(topic, handler, batch, times), pa.binary()), keys)
    values = handler.serialize(batch)
    if times is not None:
        values = binary.envelope_handler().serialize(_wrap_in_envelope(topic, values, times))
    if topic.codec == "json":
        values = pa.array(json_records.to_json(topic, values.to_pylist()), pa.binary())
    return OutgoingRecords(values, keys)


def decode(
    topic: Topic,
    partition: int,
    records: Records,
    *,
    panes: bool = False,
    wanted_columns: frozenset[str] | None = None,
) -> Decoded:
    """The rows of records, and the records that cannot be decoded.

    With `wanted_columns`, rows have only those columns of their type. The fields of other columns are not
    parsed, so what is wrong in them alone makes no dead row.
    """
    topic = topic.typed()
    if topic.compact and records.values.null_count:  # tombstones
        decoded = decode(topic, partition, records.with_values(), panes=panes, wanted_columns=wanted_columns)
        if not topic.tombstones:
            return decoded
        return Decoded(
            pl.concat([decoded.rows, tombstones.tombstone_rows(topic, records, decoded.rows)]).sort(OFFSET),
            decoded.dead,
        )
    if not len(records):
        return Decoded(_no_rows(topic, panes), no_dead_rows())
    unreadable = UnreadableRecords(records)
    values = records.values
    if topic.confluent:
        values, errors = confluent.strip_headers(values, indexed=topic.codec == "binary")
        unreadable.mark(errors)
    if topic.codec != "binary":
        messages, errors = (avro if topic.codec == "avro" else json_records).to_protobuf(
            topic, values.to_pylist()
        )
        unreadable.mark(errors)
        values = pa.array(messages, pa.binary())
    fields = [name for name in topic.schema if wanted_columns is None or name in wanted_columns]
    names = None if wanted_columns is None else frozenset(fields)
    columns = (
        _decode_envelopes(topic, unreadable, values, panes, names)
        if topic.envelope
        else _decode_plain(topic, unreadable, values, names)
    )
    rows = unreadable.readable_rows(
        columns,
        [*fields, "event_time", "ingestion_time", *(pane_columns.COLUMNS if panes else ())],
        topic.schema,
    )
    return Decoded(rows, unreadable.dead_rows(topic.name, partition))


def _decode_envelopes(
    topic: Topic,
    unreadable: UnreadableRecords,
    values: BinaryArray,
    panes: bool,
    names: frozenset[str] | None,
) -> dict[str, Any]:
    """The columns of records with an envelope."""
    handler = binary.event_handler(topic.type, names)
    opened = _parse_sealed(topic, values, panes, names)
    if opened is not None:
        events, fields = opened
        _check_type(topic, unreadable, events.column("details").field("type_url"))
        fields, errors = handler.parse_texts(fields, {})
    else:
        events, errors = binary.envelope_handler().parse(values)
        unreadable.mark({row: f"not a millrace.Event: {reason}" for row, reason in errors.items()})
        details = events.column("details")
        _check_type(topic, unreadable, details.field("type_url"))
        fields, errors = handler.parse(details.field("value"))
    unreadable.mark({row: f"not a {topic.type_name}: {reason}" for row, reason in errors.items()})
    columns: dict[str, Any] = dict(zip(fields.schema.names, fields.columns, strict=True))
    _mark_invalid_timestamps(unreadable, columns)
    columns["event_time"] = _check_event_times(unreadable, events.column("event_timestamp").view(pa.int64()))
    ingestion_times = events.column("ingestion_timestamp").view(pa.int64())
    columns["ingestion_time"] = (
        pc.coalesce(ingestion_times, pa.array(unreadable.records.timestamps))
        if ingestion_times.null_count
        else ingestion_times
    )
    if panes:
        pane = events.column("pane")
        pane_arrays = (
            pane.flatten() if pane.null_count else [pane.field(name) for name in pane_columns.COLUMNS]
        )
        columns |= dict(zip(pane_columns.COLUMNS, pane_arrays, strict=True))
    return columns


def _parse_sealed(
    topic: Topic, values: BinaryArray, panes: bool, names: frozenset[str] | None
) -> tuple[Any, Any] | None:
    """The envelopes and the fields of the events in them, parsed at once; None if any record is unusual.

    Those with an error, or without an event, are then found by parsing one after the other.
    """
    handler = binary.sealed_handler(topic.type, names, panes)
    events = None if handler is None else handler.parse_all(values)
    if events is None or events.column("details").null_count:
        return None
    fields = events.column("details").field("value")
    return None if fields.null_count else (events, pa.RecordBatch.from_struct_array(fields))


def _decode_plain(
    topic: Topic, unreadable: UnreadableRecords, values: BinaryArray, names: frozenset[str] | None
) -> dict[str, Any]:
    """The columns of records without an envelope, which others wrote."""
    needed = None if names is None else names | {str(topic.time)}
    fields, errors = binary.event_handler(topic.type, needed).parse(values)
    unreadable.mark({row: f"not a {topic.type_name}: {reason}" for row, reason in errors.items()})
    columns: dict[str, Any] = dict(zip(fields.schema.names, fields.columns, strict=True))
    _mark_invalid_timestamps(unreadable, columns)
    times = columns[str(topic.time)]
    if pa.types.is_string(times.type):
        times = pa.array([_parse_iso(text) for text in times.to_pylist()], pa.int64())
    elif pa.types.is_timestamp(times.type):
        times = pl.Series(values=times).dt.cast_time_unit("ms").to_arrow().view(pa.int64())
    elif (
        topic.codec == "binary"
        and not event_types.descriptor(topic.type).fields_by_name[str(topic.time)].has_presence
    ):
        times = pc.if_else(pc.equal(times, 0), None, times)  # protobuf writes no zeros: the field is absent
    columns["event_time"] = _check_event_times(unreadable, times.cast(pa.int64(), safe=False))
    columns["ingestion_time"] = pa.array(unreadable.records.timestamps)
    columns |= {name: pa.nulls(len(times), _ARROW_PANES[name]) for name in pane_columns.COLUMNS}
    return columns


def _check_type(topic: Topic, unreadable: UnreadableRecords, urls: Any) -> None:
    expected = _TYPE_URL + topic.type_name
    if pc.all(pc.equal(urls, expected)).as_py():
        return
    for row, url in enumerate(urls.to_pylist()):
        if url.rpartition("/")[2] != topic.type_name:
            unreadable.mark({row: f"holds {url.rpartition('/')[2] or 'no details'}, not {topic.type_name}"})


def _check_event_times(unreadable: UnreadableRecords, times: Any) -> Any:
    if times.null_count:
        unreadable.mark_where(times.is_null().to_numpy(zero_copy_only=False), "has no event time")
        times = times.fill_null(0)
    values = times.to_numpy()
    if values.min() < MIN_TIME or values.max() > MAX_TIME:
        unreadable.mark_where(
            (values < MIN_TIME) | (values > MAX_TIME), "event time is outside the years 1 to 9999"
        )
    return times


def _mark_invalid_timestamps(unreadable: UnreadableRecords, columns: dict[str, Any]) -> None:
    """Marks records with timestamps for which polars has no dates: reading one would end the process."""
    for name, column in columns.items():
        for rows in _out_of_range(column):
            unreadable.mark(dict.fromkeys(rows.tolist(), f"{name} is outside the years 1 to 9999"))


def _refuse_invalid_timestamps(batch: Any, label: str) -> None:
    """Refuses timestamps that no reader could decode."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for rows in _out_of_range(column):
            raise DefinitionError(
                f"{label}: column {name!r} holds times outside the years 1 to 9999, first in row {rows[0]}; "
                "set such rows aside before they are written"
            )


def _out_of_range(column: Any) -> Iterator[NDArray[np.int64]]:
    """The rows that hold a timestamp out of range, at any depth."""
    arrow_type = column.type
    if pa.types.is_timestamp(arrow_type):
        times = column.view(pa.int64())
        per_milli = 1000 if arrow_type.unit == "us" else 1
        least, greatest = MIN_TIME * per_milli, (MAX_TIME + 1) * per_milli - 1
        bounds = pc.min_max(times).as_py()
        if bounds["min"] is not None and (bounds["min"] < least or bounds["max"] > greatest):
            values = times.fill_null(0).to_numpy()
            if (rows := np.flatnonzero((values < least) | (values > greatest))).size:
                yield rows
    elif pa.types.is_struct(arrow_type):
        for child in column.flatten():
            yield from _out_of_range(child)
    elif pa.types.is_map(arrow_type):
        yield from _out_of_range(
            column.cast(pa.list_(pa.struct([("key", arrow_type.key_type), ("value", arrow_type.item_type)])))
        )
    elif pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        parents = pc.list_parent_indices(column).to_numpy()
        for rows in _out_of_range(pc.list_flatten(column)):
            yield np.unique(parents[rows])


def _parse_iso(text: str | None) -> int | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    since_epoch = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since_epoch.days * 86_400 + since_epoch.seconds) * 1000 + since_epoch.microseconds // 1000


def _envelope_columns(frame: pl.DataFrame, ingestion_time: int | None, label: str) -> tuple[Any, Any, Any]:
    """The columns of the envelope besides the details: event time, ingestion time, pane."""
    if "event_time" not in frame.columns:
        raise DefinitionError(f"{label}: the rows lack event_time, without which they have no place in time")
    count = len(frame)
    if ingestion_time is not None:
        ingestion_times = pa.repeat(pa.scalar(ingestion_time, pa.int64()), count).view(_TIMESTAMP)
    elif "ingestion_time" in frame.columns:
        ingestion_times = _to_timestamps(frame["ingestion_time"], label, optional=True)
    else:
        ingestion_times = pa.nulls(count, _TIMESTAMP)
    return (
        _to_timestamps(frame["event_time"], label),
        ingestion_times,
        _pane_column(frame, binary.envelope_handler().schema.field("pane").type, label),
    )


def _wrap_in_envelope(topic: Topic, values: BinaryArray, envelope_columns: tuple[Any, Any, Any]) -> Any:
    schema = binary.envelope_handler().schema
    details = pa.StructArray.from_arrays(
        [pa.repeat(_TYPE_URL + topic.type_name, len(values)), values],
        fields=list(schema.field("details").type),
    )
    event_times, ingestion_times, pane = envelope_columns
    return pa.RecordBatch.from_arrays([event_times, ingestion_times, details, pane], names=schema.names)


def _to_json_lines(
    topic: Topic, handler: binary.Handler, batch: Any, envelope_columns: tuple[Any, Any, Any] | None
) -> list[bytes]:
    if envelope_columns is None:
        return json_lines.to_lines(json_lines.to_objects(handler.descriptor, batch))
    details = json_lines.to_objects(
        handler.descriptor, batch, first=f'"@type": "{_TYPE_URL}{topic.type_name}"'
    )
    event_times, ingestion_times, pane = envelope_columns
    return json_lines.to_events(
        event_times,
        ingestion_times,
        details,
        json_lines.to_pane_objects(cast("Descriptor", event_pb2.Pane.DESCRIPTOR), pane),
    )


def _to_timestamps(times: pl.Series, label: str, *, optional: bool = False) -> Any:
    array = times.cast(pl.Int64).rechunk().to_arrow()
    if array.null_count and not optional:
        raise DefinitionError(
            f"{label}: {array.null_count} rows have no {times.name}, without which they have no place in "
            "time; filter them out or fill it"
        )
    bounds = pc.min_max(array).as_py()
    first, last = bounds["min"], bounds["max"]
    if first is not None and (first < MIN_TIME or last > MAX_TIME):
        raise DefinitionError(
            f"{label}: {times.name} from {first} to {last} ms is outside the years 1 to 9999; set such rows "
            "aside before they are written"
        )
    return array.view(_TIMESTAMP)


def _pane_column(frame: pl.DataFrame, arrow_type: Any, label: str) -> Any:
    present = [name for name in pane_columns.COLUMNS if name in frame.columns]
    if not present:
        return pa.nulls(len(frame), arrow_type)
    if len(present) < len(pane_columns.COLUMNS):
        missing = [name for name in pane_columns.COLUMNS if name not in present]
        raise DefinitionError(
            f"{label}: the rows have pane columns {', '.join(present)}, but lack {', '.join(missing)}"
        )
    table = (
        frame.select(*pane_columns.COLUMNS)
        .cast(pl.Schema(pane_columns.COLUMNS))
        .to_arrow(compat_level=pl.CompatLevel.oldest())
        .cast(pa.schema(list(arrow_type)))
    )
    return (
        table.combine_chunks().to_batches()[0].to_struct_array() if len(frame) else pa.array([], arrow_type)
    )


def _key_bytes(column: Any) -> BinaryArray:
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_duration(column.type):
        column = column.view(pa.int64())
    return column.cast(pa.string()).view(pa.binary())


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
def _no_rows_of(event_type: type, columns: tuple[str, ...]) -> pl.DataFrame:
    added: dict[str, Any] = {"event_time": pl.Int64, "ingestion_time": pl.Int64}
    added |= {**{name: pane_columns.COLUMNS[name] for name in columns}, OFFSET: pl.Int64}
    return pl.DataFrame(schema={**event_types.columns(event_type), **added})


def _no_rows(topic: Topic, panes: bool) -> pl.DataFrame:
    return _no_rows_of(topic.type, tuple(pane_columns.COLUMNS) if panes else ())
