"""Records without a value, by which topics that are compacted say that a key is gone."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millrace.log.contract import OutgoingRecords, Records
from millrace.panes import COLUMNS, RETRACT
from millrace.topics import Topic


def bury_retractions(frame: pl.DataFrame, records: OutgoingRecords) -> OutgoingRecords:
    """What a frame withdraws, without a value: only the key is left of it."""
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
    """The records without a value as rows in the columns of others: the key, and the time at which they were appended; all else is null."""
    indices = np.flatnonzero(records.values.is_null().to_numpy(zero_copy_only=False))
    append_times = records.timestamps[indices]
    keys = pl.Series("key", records.keys.take(pa.array(indices)).to_pylist(), pl.Binary).cast(
        pl.String, strict=False
    )
    columns = {
        str(topic.key): keys.cast(topic.schema[str(topic.key)], strict=False),
        "event_time": pl.Series(append_times),
        "ingestion_time": pl.Series(append_times),
        "_off": pl.Series(records.offsets[indices]),
        "op": pl.Series([RETRACT] * len(indices), dtype=COLUMNS["op"]),
    }
    nulls = pl.repeat(None, len(indices), eager=True)
    return pl.DataFrame(
        {name: columns.get(name, nulls).cast(dtype) for name, dtype in template.schema.items()}
    )
