"""Records without a value, by which topics that are compacted say that a key is gone."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millrace.log.contract import Outgoing, Records
from millrace.panes import COLUMNS, RETRACT
from millrace.topics import Topic


def buried(frame: pl.DataFrame, records: Outgoing) -> Outgoing:
    """What a frame withdraws, without a value: only the key is left of it."""
    if "op" not in frame.columns or not (gone := frame["op"] == RETRACT).any():
        return records
    mask = pa.array((~gone).to_list())
    return Outgoing(
        pc.if_else(mask, records.values, pa.scalar(None, pa.binary())),
        records.keys,
        records.headers,
        records.partitions,
    )


def rows(topic: Topic, records: Records, like: pl.DataFrame) -> pl.DataFrame:
    """The records without a value as rows in the columns of others: the key, and the time at which they were appended; all else is null."""
    places = np.flatnonzero(records.values.is_null().to_numpy(zero_copy_only=False))
    at = records.timestamps[places]
    keys = pl.Series("key", records.keys.take(pa.array(places)).to_pylist(), pl.Binary).cast(
        pl.String, strict=False
    )
    known = {
        str(topic.key): keys.cast(topic.schema[str(topic.key)], strict=False),
        "event_time": pl.Series(at),
        "ingestion_time": pl.Series(at),
        "_off": pl.Series(records.offsets[places]),
        "op": pl.Series([RETRACT] * len(places), dtype=COLUMNS["op"]),
    }
    nothing = pl.repeat(None, len(places), eager=True)
    return pl.DataFrame({name: known.get(name, nothing).cast(dtype) for name, dtype in like.schema.items()})
