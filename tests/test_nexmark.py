"""The queries of Nexmark: what their streams come to in the end is what DuckDB answers over all events."""

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import millrace as mr
from bench.nexmark import fill_log
from examples.nexmark.events import (
    AUCTIONS,
    BIDS,
    DISORDER,
    PER_EPOCH,
    PERSONS,
    SIDE,
    generate,
    side_input,
)
from examples.nexmark.queries import JOBS, NEWEST
from millrace.config import Settings
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode
from millrace.runners.local import run_local
from millrace.runners.replay import BATCH_ROWS, replay_all
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine, reads
from peers.streams import added_up, newest, plain

FOLDER = Path(__file__).parents[1] / "examples" / "nexmark"
SQL = dict(re.findall(r"(?ms)^-- (q\d+)\n(.+?)(?=^-- q|\Z)", (FOLDER / "queries.sql").read_text()))
PACES = {"seconds": 20.0, "hours": 20_000.0}
"""How many milliseconds there are between events: many in a window, or a night and two days."""
EVENTS = 2_000
BY_CLOCK = ("q12",)
"""Their rows lie where the clock of their batch is. So batches hold rows of one window here."""
Answer = Counter[tuple[Any, ...]]


def events(pace: float, seed: int = 1) -> dict[str, pl.DataFrame]:
    return {**generate(EVENTS, seed=seed, pace=pace), SIDE.name: side_input()}


def thinned(name: str, frames: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Fewer events, where every few of them are a batch."""
    return {topic: frame.gather_every(10 if name in BY_CLOCK else 1) for topic, frame in frames.items()}


@pytest.fixture(scope="module", params=PACES)
def frames(request: pytest.FixtureRequest) -> dict[str, pl.DataFrame]:
    return events(PACES[request.param])


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as db:
        db.execute("SET threads = 1")
        yield db


def ask(
    db: duckdb.DuckDBPyConnection, name: str, frames: Mapping[str, pl.DataFrame]
) -> tuple[list[str], Answer]:
    """The columns of an answer, and its rows."""
    for topic, frame in frames.items():
        db.register(topic.removeprefix("nexmark."), frame.to_arrow())
    answer = db.execute(SQL[name])
    columns = [column[0] for column in answer.description or ()]
    return columns, Counter(map(plain, answer.fetchall()))


def hold(name: str, written: list[dict[str, Any]], columns: list[str]) -> Answer:
    """The rows that hold in the end."""
    return newest(written, NEWEST[name], columns) if name in NEWEST else added_up(written, columns)


def stream(job: mr.Job, frames: Mapping[str, pl.DataFrame], chance: random.Random) -> list[dict[str, Any]]:
    """What a job writes, in batches cut at random, with restarts; no row is late."""
    topics = [read.topic.name for read in reads(job)]
    partitions = {topic: chance.choice([1, 2]) for topic in topics}
    rows = [
        SourceEvent(
            topic,
            number % partitions[topic],
            number // partitions[topic],
            row["event_time"],
            row.get("ingestion_time", row["event_time"]),
            {name: row[name] for name in frames[topic].columns if not name.endswith("_time")},
        )
        for topic in dict.fromkeys(topics)
        for number, row in enumerate(frames[topic].to_dicts())
    ]
    rows.sort(key=lambda row: row.ingestion_time)
    engine, written = OnEngine([job], partitions, slots=chance.choice([1, 3])), []
    at, restarted = 0, False
    while at < len(rows):
        batch = rows[at : at + chance.randint(1, 400)]
        if job.name in BY_CLOCK:
            batch = [
                row for row in batch if row.ingestion_time // 10_000 == batch[0].ingestion_time // 10_000
            ]
        at += len(batch)
        fed = engine.feed(batch, batch[-1].ingestion_time, end=at == len(rows))
        assert not any(fed.late.values()), f"a row is late: {fed.late}"
        written += fed.written.get(job.outputs[0].topic.name, [])
        if not restarted or chance.random() < 0.2:
            engine.restart()
            restarted = True
    return written


def read(log: Log, topic: mr.Topic) -> list[dict[str, Any]]:
    """All that a topic holds, in the order of its partitions."""
    parts = [
        decode(topic, partition, log.read(topic.name, partition, 0, end), panes=True).rows.sort("_off")
        for partition, end in log.end_offsets(topic.name).items()
    ]
    return pl.concat(parts).with_columns(pl.col("op").fill_null("+")).to_dicts()


def test_every_query_is_asked_of_both() -> None:
    assert list(JOBS) == list(SQL) == [f"q{n}" for n in range(24)]
    assert {job.outputs[0].topic.name for job in JOBS.values()} == {f"nexmark.{name}" for name in JOBS}


@pytest.mark.parametrize("name", JOBS)
def test_a_replay_comes_to_what_a_database_answers(
    name: str, frames: dict[str, pl.DataFrame], duck: duckdb.DuckDBPyConnection
) -> None:
    job, batch = JOBS[name], 1 if name in BY_CLOCK else BATCH_ROWS
    frames = thinned(name, frames)
    columns, wanted = ask(duck, name, frames)
    result = replay_all(job, {read.topic.name: frames[read.topic.name] for read in reads(job)}, batch=batch)
    assert result.late.is_empty()
    assert hold(name, next(iter(result.outputs.values())).to_dicts(), columns) == wanted
    assert wanted or name == "q8", "new users of the same ten seconds need a quick stream"


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_a_stream_with_restarts_comes_to_the_same(
    name: str, frames: dict[str, pl.DataFrame], duck: duckdb.DuckDBPyConnection
) -> None:
    frames = thinned(name, frames)
    columns, wanted = ask(duck, name, frames)
    assert hold(name, stream(JOBS[name], frames, random.Random(name)), columns) == wanted


@pytest.mark.slow
def test_all_run_together_over_a_log_to_its_end(
    tmp_path: Path, frames: dict[str, pl.DataFrame], duck: duckdb.DuckDBPyConnection
) -> None:
    settings = Settings().with_options(
        log_url=f"embedded:{tmp_path}/log", state_dir=tmp_path / "state", run_max_events_per_batch=700
    )
    fill_log(settings, frames)
    jobs = [job for job in JOBS.values() if job.name not in BY_CLOCK]
    run_local(jobs, settings=settings, until_end=True)
    with closing(open_log(settings.log.url)) as log:
        for job in jobs:
            columns, wanted = ask(duck, job.name, frames)
            assert hold(job.name, read(log, job.outputs[0].topic), columns) == wanted, job.name


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("name", JOBS)
def test_other_events_cut_otherwise_come_to_the_same(
    name: str, seed: int, duck: duckdb.DuckDBPyConnection
) -> None:
    chance = random.Random(f"{name} {seed}")
    frames = thinned(name, events(chance.choice([*PACES.values(), 300.0]), seed))
    columns, wanted = ask(duck, name, frames)
    assert hold(name, stream(JOBS[name], frames, chance), columns) == wanted


def test_the_same_seed_makes_the_same_events() -> None:
    for topic, frame in generate(500).items():
        assert frame.equals(generate(500)[topic])
        assert not frame.equals(generate(500, seed=2)[topic])


def test_events_come_in_the_proportions_of_the_definition() -> None:
    frames = generate(5_000)
    assert tuple(len(frames[topic.name]) // 100 for topic in (PERSONS, AUCTIONS, BIDS)) == PER_EPOCH
    for frame in frames.values():
        behind = frame["ingestion_time"] - frame["event_time"]
        assert frame["ingestion_time"].is_sorted()
        assert behind.is_between(0, DISORDER, closed="left").all()
        assert behind.n_unique() > 10
    [hottest] = frames[BIDS.name]["auction"].value_counts(sort=True)["count"].head(1)
    assert hottest > len(frames[BIDS.name]) / 50
