"""Tombstones: records without a value, which in a compacted topic mean that their key is deleted."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millrace.log.codecs.stored_text import parse_text
from millrace.log.contract import OutgoingRecords, Records
from millrace.panes import COLUMNS, RETRACT
from millrace.topics import Topic
from millrace.values.columns import OFFSET


def bury_retractions(frame: pl.DataFrame, records: OutgoingRecords) -> OutgoingRecords:
    """The records of a frame, with those of retracted rows turned into tombstones."""
    if "op" not in frame.columns or not (is_retraction := frame["op"] == RETRACT).any():
        return records
    mask = pa.array((~is_retraction).to_list())
    return OutgoingRecords(
        pc.if_else(mask, records.values, pa.scalar(None, pa.binary())),
        records.keys,
        records.headers,
        records.partitions,
    )


def tombstone_rows(topic: Topic, records: Records, template: pl.DataFrame) -> pl.DataFrame:
    """Tombstones as rows with the columns of `template`: key and append time; all else is null."""
    indices = np.flatnonzero(records.values.is_null().to_numpy(zero_copy_only=False))
    append_times = records.timestamps[indices]
    keys = pl.Series("key", records.keys.take(pa.array(indices)).to_pylist(), pl.Binary).cast(
        pl.String, strict=False
    )
    columns = {
        str(topic.key): _parse_keys(keys, topic.schema[str(topic.key)]),
        "event_time": pl.Series(append_times),
        "ingestion_time": pl.Series(append_times),
        OFFSET: pl.Series(records.offsets[indices]),
        "op": pl.Series([RETRACT] * len(indices), dtype=COLUMNS["op"]),
    }
    nulls = pl.repeat(None, len(indices), eager=True)
    return pl.DataFrame(
        {name: columns.get(name, nulls).cast(dtype) for name, dtype in template.schema.items()}
    )


def _parse_keys(texts: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Keys of records as values; null where a text is none."""
    if isinstance(dtype, pl.Datetime):
        moments = texts.str.strip_suffix("Z").str.to_datetime(
            "%Y-%m-%d %H:%M:%S%.f", time_unit=dtype.time_unit, strict=False
        )
        return moments.dt.replace_time_zone("UTC").cast(dtype)
    if dtype == pl.Boolean:
        return texts.replace_strict({"true": True, "false": False}, default=None, return_dtype=dtype)
    parsed, _ = parse_text(texts.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string()), dtype)
    return pl.Series(values=parsed).cast(dtype, strict=False)
