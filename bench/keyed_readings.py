"""Synthetic readings of any number of keys, for measurements of windows, triggers and aggregates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from typing import Any

import numpy as np
import polars as pl

from millrace.log import Log
from millrace.log.codecs.codec import encode
from millrace.stream import Output, Stream
from millrace.topics import SYSTEM_COLUMNS, Topic

START = 1_700_000_000_000
"""The time of the first reading. Any value will do, as long as it never changes."""
CHUNK = 200_000
"""The approximate number of readings in a frame."""


@dataclass
class Reading:
    """One reading. `place` is one of a hundred."""

    key: str
    value: int
    place: int


def topic(name: str = "input.readings") -> Topic:
    """A topic of readings."""
    return Topic(name, Reading, key="key")


def readings(seconds: int, *, keys: int, start: int = START, seed: int = 1) -> Iterator[pl.DataFrame]:
    """One reading per key and second, in the order of arrival: most arrive within a second,
    one in a hundred up to 20 s late.
    """
    rng = np.random.default_rng(seed)
    key_names = np.array([f"key-{number:07d}" for number in range(keys)])
    step = max(1, CHUNK // keys)
    for first in range(0, seconds, step):
        shape = (min(step, seconds - first), keys)
        at = start + (first + np.arange(shape[0]))[:, None] * 1_000 + rng.integers(0, 1_000, shape)
        lag = np.where(
            rng.random(shape) < 0.99, rng.integers(0, 1_000, shape), rng.integers(1_000, 20_000, shape)
        )
        yield _make_frame(
            rng, np.broadcast_to(key_names, shape).ravel(), at.ravel(), (at + lag).ravel()
        ).sort("ingestion_time", maintain_order=True)


def random_readings(rows: int, *, keys: int, start: int, seed: int = 2) -> pl.DataFrame:
    """Readings of random keys, one per millisecond, in order."""
    rng = np.random.default_rng(seed)
    names = np.array([f"key-{number:07d}" for number in range(keys)])[rng.integers(0, keys, rows)]
    at = start + np.arange(rows)
    return _make_frame(rng, names, at, at)


def fill(log: Log, into: Topic, frames: Iterator[pl.DataFrame] | list[pl.DataFrame]) -> int:
    """Appends readings to a topic; returns their number."""
    log.ensure(into)
    count = 0
    for frame in frames:
        log.append(into.name, encode(into, frame))
        count += frame.height
    return count


def write_to_topic(stream: Stream, name: str) -> Output:
    """Writes a stream to a topic whose type fits it."""
    columns = {column: dtype for column, dtype in stream.node.schema.items() if column not in SYSTEM_COLUMNS}
    return stream.write(Topic(name, _type("Measured", columns)))


def _make_frame(rng: np.random.Generator, keys: Any, at: Any, ingested_at: Any) -> pl.DataFrame:
    value, place = rng.integers(0, 1_000, len(at)), rng.integers(0, 100, len(at))
    return pl.DataFrame(
        {"key": keys, "value": value, "place": place, "event_time": at, "ingestion_time": ingested_at}
    )


def _type(name: str, columns: dict[str, Any]) -> type:
    return make_dataclass(
        name, [(column, _hint(f"{name}_{column}", dtype)) for column, dtype in columns.items()]
    )


def _hint(name: str, dtype: Any) -> Any:
    if isinstance(dtype, pl.List):
        return list[_hint(name, dtype.inner)]  # type: ignore[misc]  # a type made at run time
    if isinstance(dtype, pl.Struct):
        return _type(name, {field.name: field.dtype for field in dtype.fields})
    return float if dtype.is_float() else int if dtype.is_integer() else bool if dtype == pl.Boolean else str
