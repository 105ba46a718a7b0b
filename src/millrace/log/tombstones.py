"""Tombstones: records without a value, which in a compacted topic mean that their key is deleted."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

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
        str(topic.key): keys.cast(topic.schema[str(topic.key)], strict=False),
        "event_time": pl.Series(append_times),
        "ingestion_time": pl.Series(append_times),
        OFFSET: pl.Series(records.offsets[indices]),
        "op": pl.Series([RETRACT] * len(indices), dtype=COLUMNS["op"]),
    }
    nulls = pl.repeat(None, len(indices), eager=True)
    return pl.DataFrame(
        {name: columns.get(name, nulls).cast(dtype) for name, dtype in template.schema.items()}
    )
