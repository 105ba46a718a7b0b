"""Letters: records set aside, each with its reason and where it came from in its headers.

`dead.<topic>` holds what could not be decoded, byte for byte; `late.<job>` the rows that a job refused, encoded as in their topic.
"""

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from millrace.log.contract import Headers, Outgoing, Records

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


def read_letters(records: Records) -> pl.DataFrame:
    """Letters as a frame: a text column for each header that occurs, then `key` and `value`."""
    headers = [{name: value.decode(errors="replace") for name, value in record} for record in records.headers or [()] * len(records)]
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
    columns = [frame[name].cast(pl.String).to_list() for name in present]
    return [
        tuple((name, value.encode()) for name, value in zip(present, row, strict=True) if value is not None)
        for row in zip(*columns, strict=True)
    ]
