"""Dead letters: a record that cannot be decoded is written to `dead.<topic>`, byte for byte, with the reason
in its headers.

1. `codecs.codec.decode` splits a range of records into rows and dead rows (`DEAD_SCHEMA`). One bad
   record does not disturb its neighbours.
2. `dead_letters` makes records of dead rows: key and value unchanged; reason, topic, partition, offset and
   timestamp as headers.
3. `runners.commit` writes them in the transaction of the batch that read them, so each is there exactly once.

Ingestion writes what it cannot understand to the same topics. Late rows are letters, too: `late.<job>` holds
the rows that a job refused, encoded as in their topic.

A letter that is larger than its topic accepts is cut (`truncate_letters`). Its headers then hold the length
of the value (`length`) and its SHA-256 (`sha256`), of a key that is cut, too, `key_length` and `key_sha256`.
The original stays where `topic`, `partition` and `offset` point.
"""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from millrace.log.contract import Headers, OutgoingRecords, Records
from millrace.log.record_sizes import HEADER_OVERHEAD, RECORD_OVERHEAD, header_size, record_sizes

DEAD_SCHEMA = pl.Schema(
    {
        "topic": pl.String(),
        "partition": pl.Int64(),
        "offset": pl.Int64(),
        "timestamp": pl.Int64(),
        "key": pl.Binary(),
        "value": pl.Binary(),
        "reason": pl.String(),
    }
)
"""Where a dead record was, when it was appended there, its key and value, and why it cannot be read."""

_DEAD_HEADERS = ("reason", "topic", "partition", "offset", "timestamp")
_LATE_HEADERS = ("reason", "missed", "topic", "partition", "offset")
MAX_REASON_CHARS = 2_000
"""Characters of a reason that are kept: some libraries quote the whole input in their errors."""
APPEND_BYTES = 8 << 20
"""The most bytes of letters that are appended together."""
_MAX_KEY_BYTES = 1_000
"""Bytes of a key that are kept where a letter must be cut."""


def replace_surrogates(text: str) -> str:
    """The text with `?` for halves of surrogate pairs: errors may quote them, UTF-8 cannot encode them."""
    return text.encode(errors="replace").decode()


def dead_topic(topic: str) -> str:
    """The topic for records of `topic` that cannot be decoded."""
    return f"dead.{topic}"


def late_topic(job: str) -> str:
    """The topic for rows that `job` refused."""
    return f"late.{job}"


def dead_letters(dead: pl.DataFrame) -> OutgoingRecords:
    """Records for one `dead.*` topic, from a frame of the `DEAD_SCHEMA`."""
    return OutgoingRecords(
        _binary_array(dead["value"]), _binary_array(dead["key"]), _header_rows(dead, _DEAD_HEADERS)
    )


def late_letters(encoded: OutgoingRecords, late: pl.DataFrame) -> OutgoingRecords:
    """Records for a `late.*` topic: the encoded rows, with headers from the columns `reason`, `missed`,
    `topic`, `partition` and `offset` of `late`.
    """
    return OutgoingRecords(encoded.values, encoded.keys, _header_rows(late, _LATE_HEADERS))


def truncate_letters(letters: OutgoingRecords, max_bytes: int | None) -> OutgoingRecords:
    """The same letters, cut where larger than `max_bytes` (`Log.max_record_bytes`; None: no limit)."""
    if (
        max_bytes is None
        or not len(letters)
        or not (oversized := np.flatnonzero(record_sizes(letters) > max_bytes)).size
    ):
        return letters
    values, keys = letters.values.to_pylist(), None if letters.keys is None else letters.keys.to_pylist()
    headers: list[Headers] = [()] * len(letters) if letters.headers is None else list(letters.headers)
    for row in oversized.tolist():
        key = None if keys is None else keys[row]
        values[row], kept_key, headers[row] = _truncate_letter(values[row], key, headers[row], max_bytes)
        if keys is not None:
            keys[row] = kept_key
    return OutgoingRecords(
        pa.array(values, pa.binary()),
        None if keys is None else pa.array(keys, pa.binary()),
        headers,
        letters.partitions,
    )


def split_letters(letters: OutgoingRecords, max_bytes: int = APPEND_BYTES) -> Iterator[OutgoingRecords]:
    """The same letters in parts of at most `max_bytes` each, unless one letter alone is larger."""
    sizes, first, total = record_sizes(letters), 0, 0
    for row, size in enumerate(sizes.tolist()):
        if row > first and total + size > max_bytes:
            yield _slice_letters(letters, first, row)
            first, total = row, 0
        total += size
    yield _slice_letters(letters, first, len(letters))


def _slice_letters(letters: OutgoingRecords, first: int, end: int) -> OutgoingRecords:
    keys = None if letters.keys is None else letters.keys[first:end]
    headers = None if letters.headers is None else letters.headers[first:end]
    return OutgoingRecords(
        letters.values[first:end],
        keys,
        headers,
        None if letters.partitions is None else letters.partitions[first:end],
    )


def split_oversized(
    topic: str, records: OutgoingRecords, max_bytes: int | None
) -> tuple[OutgoingRecords, pl.DataFrame | None]:
    """The records that `topic` accepts, and those that are too large as dead rows; None: there are none."""
    if max_bytes is None or not len(records):
        return records, None
    sizes = record_sizes(records)
    if not (is_oversized := sizes > max_bytes).any():
        return records, None
    kept_rows, oversized_rows = pa.array(np.flatnonzero(~is_oversized)), np.flatnonzero(is_oversized)
    headers = None if records.headers is None else [records.headers[row] for row in kept_rows.to_pylist()]
    keys = None if records.keys is None else records.keys.take(kept_rows)
    partitions = None if records.partitions is None else records.partitions[~is_oversized]
    reasons = [
        f"a record of {size} bytes for {topic!r}, which takes {max_bytes}: not written"
        for size in sizes[oversized_rows].tolist()
    ]
    dead = {
        "topic": [topic] * len(oversized_rows),
        "key": None if records.keys is None else records.keys.take(pa.array(oversized_rows)).to_pylist(),
        "value": records.values.take(pa.array(oversized_rows)).to_pylist(),
        "reason": reasons,
    }
    frame = pl.DataFrame(
        {name: dead.get(name) or [None] * len(oversized_rows) for name in DEAD_SCHEMA}, schema=DEAD_SCHEMA
    )
    return OutgoingRecords(records.values.take(kept_rows), keys, headers, partitions), frame


def _truncate_letter(
    value: bytes | None, key: bytes | None, headers: Headers, max_bytes: int
) -> tuple[bytes | None, bytes | None, Headers]:
    """The front of a value, with its length and digest as headers; a key is cut only if it is long itself."""
    kept_headers = tuple((name, content[: 4 * MAX_REASON_CHARS]) for name, content in headers)
    if value is not None:
        kept_headers += (
            ("length", str(len(value)).encode()),
            ("sha256", hashlib.sha256(value).hexdigest().encode()),
        )
    if key is not None and len(key) > _MAX_KEY_BYTES:
        kept_headers += (
            ("key_length", str(len(key)).encode()),
            ("key_sha256", hashlib.sha256(key).hexdigest().encode()),
        )
        key = key[:_MAX_KEY_BYTES]
    room_bytes = max_bytes - RECORD_OVERHEAD - len(key or b"")
    if (
        header_size(kept_headers) > room_bytes
    ):  # a limit of a few hundred bytes: the reason is the longest header
        reason_bytes = (
            room_bytes
            - header_size(tuple(pair for pair in kept_headers if pair[0] != "reason"))
            - HEADER_OVERHEAD
            - len("reason")
        )
        kept_headers = tuple(
            (name, content[: max(0, reason_bytes)] if name == "reason" else content)
            for name, content in kept_headers
        )
    return (
        None if value is None else value[: max(0, room_bytes - header_size(kept_headers))],
        key,
        kept_headers,
    )


def parse_letters(records: Records) -> pl.DataFrame:
    """Letters as a frame: a text column for each header that occurs, then `key` and `value`."""
    headers = [
        {name: value.decode(errors="replace") for name, value in record}
        for record in records.headers or [()] * len(records)
    ]
    names = list(dict.fromkeys(name for record in headers for name in record))
    columns = {name: pl.Series(name, [record.get(name) for record in headers], pl.String) for name in names}
    bytes_ = {
        "key": pl.Series("key", records.keys.to_pylist(), pl.Binary),
        "value": pl.Series("value", records.values.to_pylist(), pl.Binary),
    }
    return pl.DataFrame({**columns, **bytes_})


def _binary_array(series: pl.Series) -> pa.Array:
    return pa.array(series.to_list(), pa.binary())


def _header_rows(frame: pl.DataFrame, names: Sequence[str]) -> list[Headers]:
    present = [name for name in names if name in frame.columns]
    columns = [frame[name].cast(pl.String).str.head(MAX_REASON_CHARS).to_list() for name in present]
    return [
        tuple((name, value.encode()) for name, value in zip(present, row, strict=True) if value is not None)
        for row in zip(*columns, strict=True)
    ]
