"""Copies: the same events, told apart, later, and not in step."""

import json
from pathlib import Path

import polars as pl
import pytest

from millrace.errors import ConfigError
from millrace.ingest.connectors.copies import Copies
from millrace.ingest.connectors.recording import Recording
from millrace.ingest.connectors.recording_frames import read_frames
from millrace.ingest.contract import Connector, MessageBatch
from millrace.ingest.processors.hsl import Hsl

START = 1_600_657_200_000


def recording(folder: Path, *, vehicles: int = 2, seconds: int = 100) -> Path:
    path = folder / "r.jsonl"
    lines = [
        {"received": START + at * 1000 + 100, "topic": "t", "payload": {"VP": _position(vehicle, at)}}
        for at in range(seconds)
        for vehicle in range(vehicles)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def _position(vehicle: int, at: int) -> dict[str, object]:
    time = f"2020-09-21T03:{at // 60:02}:{at % 60:02}.000Z"
    return {"oper": 1, "veh": vehicle, "tst": time, "lat": 60 + at / 1000, "long": 24}


def taken(connector: Connector, *, limit: int = 40) -> list[pl.DataFrame]:
    with connector:
        batches: list[MessageBatch] = []
        while (batch := connector.poll(limit=limit, wait=0)) is not None:
            batches.append(batch)
            if len(batch):
                connector.acknowledge(batch)
    return [frame for batch in batches for _, frame in batch.rows]


def test_each_copy_is_the_original_under_another_name_and_later_by_its_own_time(tmp_path: Path) -> None:
    path = recording(tmp_path)
    original = read_frames(path, processor="hsl")["input.vehicle-positions"]
    copies = Copies(Recording(path, speed="max"), Hsl(), copies=4, spread="30s")
    frames = taken(copies)
    rows = pl.concat(frames).with_columns(
        copy=pl.col("vehicle_id").str.extract(r"~(\d)$").cast(pl.Int64).fill_null(0)
    )
    assert len(set(copies.delays)) == 4
    assert all(0 <= shift < 30_000 for shift in copies.delays)
    for number, shift in enumerate(copies.delays):
        back = rows.filter(copy=number).with_columns(
            pl.col("vehicle_id").str.replace(r"~\d$", ""), pl.col("event_time", "ingestion_time") - shift
        )
        assert (
            back.drop("copy")
            .sort("event_time", "vehicle_id")
            .equals(original.sort("event_time", "vehicle_id"))
        )


def test_copies_come_in_the_order_of_their_times_and_wait_until_then(tmp_path: Path) -> None:
    times = pl.concat(
        taken(Copies(Recording(recording(tmp_path), speed="max"), Hsl(), copies=8, spread="20s"))
    )["ingestion_time"]
    assert times.is_sorted()
    assert len(times) == 8 * 200


def test_originals_are_acknowledged_once_whatever_waits(tmp_path: Path) -> None:
    inner = Recording(recording(tmp_path), speed="max")
    taken(Copies(inner, Hsl(), copies=3))
    assert inner.acknowledged_count == 200


@pytest.mark.parametrize("copies", [0, 1_001, "4", True])
def test_a_number_of_copies_that_is_none_is_refused(tmp_path: Path, copies: int) -> None:
    with pytest.raises(ConfigError, match="copies="):
        Copies(Recording(tmp_path), Hsl(), copies=copies)
