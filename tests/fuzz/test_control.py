"""Any record of a control topic is used or ignored, and earlier ones stay valid."""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fuzz.inputs import CASES, SEED, batches, mutate
from millrace.log import OutgoingRecords, Records, open_log
from millrace.log.aliases import ALIASES, read_aliases, set_alias
from millrace.log.kafka import markers
from millrace.log.kafka.schemas import Schema
from millrace.log.owners import OWNERS, Owner, claim_topics, read_owners
from millrace.log.status import Status, parse_statuses
from millrace.topics import Topic

pytest.importorskip("confluent_kafka")


@dataclass
class Stop:
    name: str


SCHEMA = Schema.of_topic(Topic("stops", Stop, "name"))


def test_a_schema_is_one_or_a_value_error_and_only_a_compatible_one_follows(
    took: Callable[[int], None],
) -> None:
    took(max(1, CASES // 50) * 50)
    taken = 0
    for seed, values in batches([SCHEMA.to_json()]):
        for value in values:
            try:
                found = Schema.from_json(value)
            except ValueError:
                continue
            assert found.partitions >= 1, f"seed {seed}"
            if found.can_replace(SCHEMA):
                taken += 1
                assert (found.codec, found.type, found.envelope) == (
                    SCHEMA.codec,
                    SCHEMA.type,
                    SCHEMA.envelope,
                )
    assert taken


def test_the_last_readable_marker_is_found_whatever_follows_it(took: Callable[[int], None]) -> None:
    took(max(1, CASES // 50) * 50)
    own = markers.CommitMarker(7, 3, "me")
    for seed, values in batches([b"{", b"[]", b'{"marker": "7"}', own.to_json()[:-1]]):
        hostile = [
            value for value in values if value != own.to_json() and not value.startswith(own.to_json()[:30])
        ]
        column = pa.array([own.to_json(), *hostile], pa.binary())
        offsets = np.arange(len(column), dtype=np.int64)
        found = Records(offsets, offsets, pa.array([b"w"] * len(column), pa.binary()), column, None)
        last = markers.last_marker("w", 0, len(column), lambda start, stop, found=found: found)  # type: ignore[misc] # bound at once
        assert last == own, f"seed {seed}"


def test_statuses_that_cannot_be_read_are_ignored(took: Callable[[int], None]) -> None:
    took(max(1, CASES // 50) * 50)
    status = Status(
        at=1,
        batch=2,
        jobs=["a"],
        read=3,
        results={},
        watermarks={},
        lag={},
        took_ms=None,
        latency={},
        reads={},
        writes={},
    )
    good = status.to_records().values[0].as_py()
    for seed, values in batches([good]):
        column = pa.array([*values, good], pa.binary())
        offsets = np.arange(len(column), dtype=np.int64)
        found = parse_statuses(Records(offsets, offsets, pa.nulls(len(column), pa.binary()), column, None))
        assert found[-1] == status, f"seed {seed}"


def test_aliases_are_read_whatever_other_records_there_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, took: Callable[[int], None]
) -> None:
    took(CASES)
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure_raw("t.v2")
    chance = random.Random(SEED)
    with caplog.at_level(logging.ERROR):
        log.ensure_raw(ALIASES)
        hostile = [mutate(chance, [b'{"name": "t", "topic": 1}', b'{"name": "x"}']) for _ in range(CASES)]
        log.append(ALIASES, OutgoingRecords(pa.array(hostile, pa.binary())))
        set_alias(log, "t", "t.v2")
        assert read_aliases(log)["t"] == "t.v2"
    log.close()


def test_owners_of_topics_are_read_whatever_other_records_there_are(
    tmp_path: Path, took: Callable[[int], None]
) -> None:
    took(CASES)
    log = open_log(f"embedded:{tmp_path / 'log'}")
    owner = Owner("s", "r")
    claim_topics(log, ["t"], owner, folder="here")
    chance = random.Random(SEED)
    good = b'{"topic": "x", "state": "s2", "run": "r2", "instead": null}'
    odd = [
        b'{"topic": [], "state": "s", "run": "r"}',
        b'{"topic": "t", "state": {}, "run": 1}',
        b"[" * 100_000,
        good.replace(b"null", b"{}"),
    ]
    hostile = [*odd, *(mutate(chance, [good, *odd[:2]]) for _ in range(CASES))]
    log.append(OWNERS, OutgoingRecords(pa.array(hostile, pa.binary())))
    assert read_owners(log)["t"] == owner
    assert all(
        isinstance(text, str)
        for one in read_owners(log).items()
        for text in (one[0], one[1].state, one[1].run)
    )
    log.close()
