"""Which records of a range cannot be decoded, and why; the rows of all others."""

from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from millrace.log.contract import Records
from millrace.log.dead_letters import DEAD_SCHEMA, replace_surrogates
from millrace.values.columns import OFFSET


class UnreadableRecords:
    """Collects which records cannot be decoded, and why. A record's first reason counts."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.reasons: dict[int, str] = {}
        lengths = np.diff(
            np.frombuffer(records.values.buffers()[1], np.int32)[
                records.values.offset : records.values.offset + len(records) + 1
            ]
        )
        if records.values.null_count or not lengths.all():
            self.mark(
                dict.fromkeys(
                    np.flatnonzero(
                        (lengths == 0) | records.values.is_null().to_numpy(zero_copy_only=False)
                    ).tolist(),
                    "empty",
                )
            )

    def mark(self, reasons: dict[int, str]) -> None:
        """Sets records aside, by row."""
        for row, reason in reasons.items():
            self.reasons.setdefault(row, reason)

    def mark_where(self, mask: NDArray[np.bool_], reason: str) -> None:
        """Sets aside the records of a mask, all for the same reason."""
        self.mark(dict.fromkeys(np.flatnonzero(mask).tolist(), reason))

    def readable_rows(self, columns: dict[str, Any], order: list[str], schema: pl.Schema) -> pl.DataFrame:
        """The rows of all other records, with their offsets; `order`: the columns, `schema`: their types."""
        columns[OFFSET] = pa.array(self.records.offsets)
        batch = pa.RecordBatch.from_arrays(
            [columns[name] for name in (*order, OFFSET)], names=[*order, OFFSET]
        )
        if self.reasons:
            keep = np.ones(len(self.records), np.bool_)
            keep[list(self.reasons)] = False
            batch = batch.filter(pa.array(keep))
        frame = pl.DataFrame(batch)
        found = frame.schema
        wrong = [name for name, dtype in schema.items() if found.get(name, dtype) != dtype]
        return frame.cast({name: schema[name] for name in wrong}) if wrong else frame

    def dead_rows(self, topic: str, partition: int) -> pl.DataFrame:
        """The records that were set aside, as rows of `DEAD_SCHEMA`."""
        if not self.reasons:
            return no_dead_rows()
        rows = sorted(self.reasons)
        records, row_array = self.records, pa.array(rows)
        return pl.DataFrame(
            {
                "topic": [topic] * len(rows),
                "partition": [partition] * len(rows),
                "offset": records.offsets[rows],
                "timestamp": records.timestamps[rows],
                "key": records.keys.take(row_array).to_pylist(),
                "value": records.values.take(row_array).to_pylist(),
                "reason": [replace_surrogates(self.reasons[row]) for row in rows],
            },
            schema=DEAD_SCHEMA,
        )


@lru_cache(maxsize=1)
def no_dead_rows() -> pl.DataFrame:
    """An empty frame of the `DEAD_SCHEMA`."""
    return pl.DataFrame(schema=DEAD_SCHEMA)
