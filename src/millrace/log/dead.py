"""Letters: records set aside, each with its reason and where it came from in its headers.

`dead.<topic>` holds what could not be decoded, byte for byte; `late.<job>` the rows that a job refused, encoded as in their topic.

A letter that is larger than its topic takes is cut (`fit`). Its headers then say how long the value was (`length`) and its
SHA-256 (`sha256`), of a key that is cut too `key_length` and `key_sha256`. The original stays where `topic`, `partition` and
`offset` point.
"""

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from millrace.log.contract import Headers, Outgoing, Records
from millrace.log.record_sizes import HEADER, OVERHEAD, header_size, record_sizes

DEAD = pl.Schema(
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
"""Where a dead record was, when it was appended there, what it held, and why it cannot be read."""

_DEAD_HEADERS = ("reason", "topic", "partition", "offset", "timestamp")
_LATE_HEADERS = ("reason", "missed", "topic", "partition", "offset")
LONGEST_REASON = 2_000
"""Characters of a reason that are kept: some libraries quote the whole input in their errors."""
PORTION = 8 << 20
"""The most bytes of letters that are appended together."""
_LONGEST_KEY = 1_000
"""Bytes of a key that are kept where a letter must be cut."""


def legible(text: str) -> str:
    """The text with `?` for halves of surrogates, which errors may quote and no topic or file can hold."""
    return text.encode(errors="replace").decode()


def dead_topic(topic: str) -> str:
    """Where the records of `topic` go that cannot be decoded."""
    return f"dead.{topic}"


def late_topic(job: str) -> str:
    """Where the rows go that `job` refused."""
    return f"late.{job}"


def dead_letters(dead: pl.DataFrame) -> Outgoing:
    """Records for one `dead.*` topic, from a frame of the `DEAD` schema."""
    return Outgoing(_binary(dead["value"]), _binary(dead["key"]), _headers(dead, _DEAD_HEADERS))


def late_letters(encoded: Outgoing, late: pl.DataFrame) -> Outgoing:
    """Records for a `late.*` topic: rows as `codecs.encode` made them, and a frame with `reason`, `missed`, `topic`, `partition` and `offset` of each."""
    return Outgoing(encoded.values, encoded.keys, _headers(late, _LATE_HEADERS))


def fit(letters: Outgoing, largest: int | None) -> Outgoing:
    """The same letters, none larger than `largest` bytes (`Log.largest`; None: no limit). Those that are larger are cut."""
    if (
        largest is None
        or not len(letters)
        or not (large := np.flatnonzero(record_sizes(letters) > largest)).size
    ):
        return letters
    values, keys = letters.values.to_pylist(), None if letters.keys is None else letters.keys.to_pylist()
    headers: list[Headers] = [()] * len(letters) if letters.headers is None else list(letters.headers)
    for place in large.tolist():
        key = None if keys is None else keys[place]
        values[place], kept, headers[place] = _cut(values[place], key, headers[place], largest)
        if keys is not None:
            keys[place] = kept
    return Outgoing(
        pa.array(values, pa.binary()),
        None if keys is None else pa.array(keys, pa.binary()),
        headers,
        letters.partitions,
    )


def portions(letters: Outgoing, most: int = PORTION) -> Iterator[Outgoing]:
    """The same letters in parts of at most `most` bytes each, unless one letter alone has more."""
    sizes, first, total = record_sizes(letters), 0, 0
    for place, size in enumerate(sizes.tolist()):
        if place > first and total + size > most:
            yield _part(letters, first, place)
            first, total = place, 0
        total += size
    yield _part(letters, first, len(letters))


def _part(letters: Outgoing, first: int, end: int) -> Outgoing:
    keys = None if letters.keys is None else letters.keys[first:end]
    headers = None if letters.headers is None else letters.headers[first:end]
    return Outgoing(
        letters.values[first:end],
        keys,
        headers,
        None if letters.partitions is None else letters.partitions[first:end],
    )


def without_large(topic: str, records: Outgoing, largest: int | None) -> tuple[Outgoing, pl.DataFrame | None]:
    """Records that `topic` takes, and the others as dead rows; None: there are none."""
    if largest is None or not len(records):
        return records, None
    sizes = record_sizes(records)
    if not (large := sizes > largest).any():
        return records, None
    kept, places = pa.array(np.flatnonzero(~large)), np.flatnonzero(large)
    headers = None if records.headers is None else [records.headers[place] for place in kept.to_pylist()]
    keys = None if records.keys is None else records.keys.take(kept)
    partitions = None if records.partitions is None else records.partitions[~large]
    reasons = [
        f"a record of {size} bytes for {topic!r}, which takes {largest}: not written"
        for size in sizes[places].tolist()
    ]
    dead = {
        "topic": [topic] * len(places),
        "key": None if records.keys is None else records.keys.take(pa.array(places)).to_pylist(),
        "value": records.values.take(pa.array(places)).to_pylist(),
        "reason": reasons,
    }
    frame = pl.DataFrame({name: dead.get(name) or [None] * len(places) for name in DEAD}, schema=DEAD)
    return Outgoing(records.values.take(kept), keys, headers, partitions), frame


def _cut(
    value: bytes | None, key: bytes | None, headers: Headers, largest: int
) -> tuple[bytes | None, bytes | None, Headers]:
    """The front of a value, and headers that say what it was; the key is cut only where it is long itself."""
    told = tuple((name, content[: 4 * LONGEST_REASON]) for name, content in headers)
    if value is not None:
        told += (("length", str(len(value)).encode()), ("sha256", hashlib.sha256(value).hexdigest().encode()))
    if key is not None and len(key) > _LONGEST_KEY:
        told += (
            ("key_length", str(len(key)).encode()),
            ("key_sha256", hashlib.sha256(key).hexdigest().encode()),
        )
        key = key[:_LONGEST_KEY]
    room = largest - OVERHEAD - len(key or b"")
    if header_size(told) > room:  # a limit of a few hundred bytes: the reason is the longest of what is said
        spare = (
            room - header_size(tuple(pair for pair in told if pair[0] != "reason")) - HEADER - len("reason")
        )
        told = tuple(
            (name, content[: max(0, spare)] if name == "reason" else content) for name, content in told
        )
    return None if value is None else value[: max(0, room - header_size(told))], key, told


def read_letters(records: Records) -> pl.DataFrame:
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


def _binary(series: pl.Series) -> pa.Array:
    return pa.array(series.to_list(), pa.binary())


def _headers(frame: pl.DataFrame, names: Sequence[str]) -> list[Headers]:
    present = [name for name in names if name in frame.columns]
    columns = [frame[name].cast(pl.String).str.head(LONGEST_REASON).to_list() for name in present]
    return [
        tuple((name, value.encode()) for name, value in zip(present, row, strict=True) if value is not None)
        for row in zip(*columns, strict=True)
    ]
