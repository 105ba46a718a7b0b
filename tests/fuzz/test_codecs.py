"""Every record is decoded or becomes a dead letter, and its neighbours are unchanged."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from fuzz.inputs import CASES, batches
from millrace.log import Records
from millrace.log.codecs.codec import decode, encode
from millrace.log.codecs.confluent import strip_headers
from millrace.topics import Topic


@dataclass
class Ride:
    line: str
    riders: int
    share: float
    at: int
    note: str | None = None


AVRO = json.dumps(
    {
        "type": "record", "name": "Ride", "fields": [
            {"name": "line", "type": "string"}, {"name": "riders", "type": "long"},
            {"name": "share", "type": "double"}, {"name": "at", "type": "long"},
        ],
    }
)  # fmt: skip
ROW: dict[str, list[Any]] = {
    "line": ["7ä"],
    "riders": [41],
    "share": [0.5],
    "at": [1_700_000_000_000],
    "note": ["x"],
    "event_time": [1_700_000_000_000],
}
TOPICS = {
    "binary": Topic("t", Ride, "line"),
    "json": Topic("t", Ride, "line", codec="json"),
    "plain binary": Topic("t", Ride, "line", envelope=False, time="at"),
    "plain json": Topic("t", Ride, "line", envelope=False, time="at", codec="json"),
    "avro": Topic("t", Ride, "line", envelope=False, time="at", codec="avro", avro=AVRO),
    "confluent": Topic("t", Ride, "line", envelope=False, time="at", confluent=True),
    "confluent json": Topic("t", Ride, "line", envelope=False, time="at", codec="json", confluent=True),
    "tombstones": Topic("t", Ride, "line", compact=True, tombstones=True),
}


def sample(kind: str) -> bytes:
    if kind == "avro":
        import io

        import fastavro

        out = io.BytesIO()
        fastavro.schemaless_writer(
            out, fastavro.parse_schema(json.loads(AVRO)), {name: value[0] for name, value in ROW.items()}
        )
        return out.getvalue()
    plain = {"confluent": "plain binary", "confluent json": "plain json"}.get(kind, kind)
    value: bytes = encode(TOPICS[plain], pl.DataFrame(ROW)).values[0].as_py()
    header = {"confluent": b"\0\0\0\0\7\0", "confluent json": b"\0\0\0\0\7"}.get(kind, b"")
    return header + value


def records(values: list[bytes | None]) -> Records:
    count = len(values)
    keys = pa.array([b"k"] * count, pa.binary())
    return Records(
        np.arange(count, dtype=np.int64) * 3,
        np.full(count, 1_000, np.int64),
        keys,
        pa.array(values, pa.binary()),
        None,
    )


@pytest.mark.parametrize("kind", TOPICS)
def test_each_record_is_decoded_or_dead_and_its_neighbours_are_undisturbed(
    kind: str, took: Callable[[int], None]
) -> None:
    took(max(1, CASES // 50) * 50)
    topic, good = TOPICS[kind], sample(kind)
    alone = decode(topic, 0, records([good]), panes=True).rows.drop("_off")
    assert len(alone) == 1
    for seed, hostile in batches([good, good + good]):
        values: list[bytes | None] = [value for bad in hostile for value in (bad, good)]
        if kind == "tombstones":
            values += [None, good]
        found = decode(topic, 0, records(values), panes=True)
        offsets = [*found.rows["_off"].to_list(), *found.dead["offset"].to_list()]
        assert sorted(offsets) == [3 * place for place in range(len(values))], f"seed {seed}"
        neighbours = found.rows.filter(pl.col("_off") % 6 == 3).drop("_off")
        assert len(neighbours) == len(values) // 2, f"seed {seed}"
        assert neighbours.unique().equals(alone), f"seed {seed}"


def test_a_record_whose_error_quotes_half_a_surrogate_is_dead_alone() -> None:
    good = sample("json")
    found = decode(
        TOPICS["json"], 0, records([good, good.replace(b".Ride", b".\xed\xa0\x80Ride"), good]), panes=True
    )
    assert (found.rows.height, found.dead["offset"].to_list()) == (2, [3])
    assert found.dead["reason"].to_list() == ["holds millrace.type.?Ride, not millrace.type.Ride"]


def test_a_header_of_many_or_long_numbers_is_refused_in_no_time() -> None:
    """A number of 300,000 bytes took time by the square of its length:
    300 records held a run up for minutes.
    """
    head = b"\0\0\0\0\1"
    hostile = [
        head + b"\xff" * 300_000 + b"\1",
        head + b"\xfe\xff\xff\xff\x0f" + b"\2" * 300_000,
        head + b"\x80" * 300_000,
    ] * 100
    began = time.monotonic()
    _, bad = strip_headers(pa.array(hostile, pa.binary()), indexed=True)
    assert len(bad) == 300
    assert time.monotonic() - began < 5
