"""All five jobs as one query over a log on Kafka: the local runner and Spark say what a plain computation
does, late events included.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from ingest.connectors.simulator.cities import MORNING
from millrace.config import Settings
from millrace.devtools.brokers import Cluster
from millrace.ingest.connectors.simulator.city import City, CityPlan
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode, encode
from millrace.runners.local import run_local
from millrace.topics import Topic
from millrace.transit import ARRIVALS, POSITIONS
from millrace.transit.final_stops import final_stops
from transit.jobs import five

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

MINUTES, LATENESS, MOST = 12, 1_800_000, 2_500
Events = dict[str, pl.DataFrame]


@pytest.fixture(scope="module")
def gtfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("truth")


@pytest.fixture(scope="module")
def events(gtfs: Path) -> Events:
    """Minutes of a small city, in the order of arrival: some come late, some twice, some clocks are fast."""
    city = City(CityPlan(scale=0.012, volume="peak", calls=True, hard_stops=20.0), start=MORNING, truth=gtfs)
    made = [part for minute in range(1, MINUTES + 1) for part in city.advance(MORNING + minute * 60_000)]
    city.close()
    return {
        each.name: pl.concat([frame for topic, frame in made if topic == each])
        for each in (POSITIONS, ARRIVALS)
    }


@pytest.fixture
def log(brokers: Cluster, events: Events) -> Iterator[Log]:
    opened = open_log(f"{brokers.url}/five-{uuid.uuid4().hex[:8]}")
    for topic in (POSITIONS, ARRIVALS):
        opened.ensure(topic)
        for rows in (events[topic.name], _end(events[topic.name])):
            opened.append(topic.name, encode(topic, rows))
    yield opened
    opened.close()


def _end(rows: pl.DataFrame) -> pl.DataFrame:
    """Two hours later something is heard in every partition, so that all windows before are complete."""
    later = pl.col("event_time").max() + 7_200_000
    last = rows.select(
        pl.exclude("vehicle_id", "event_time", "ingestion_time"), event_time=later, ingestion_time=later
    ).head(1)
    names = pl.DataFrame({"vehicle_id": [f"9/{number}" for number in range(64)]})
    return names.join(last, how="cross").select(rows.columns)


def results(log: Log, topic: Topic, until: int) -> pl.DataFrame:
    """The last words of a topic on what was before the end."""
    found = [
        decode(topic, p, log.read(topic.name, p, 0, end), panes=True).rows
        for p, end in log.end_offsets(topic.name).items()
    ]
    return five.last_words(topic.name, pl.concat(found).filter(pl.col("window_start") < until))


def assert_as_computed(log: Log, events: Events, gtfs: Path) -> None:
    expected = five.expected(events, final_stops(str(gtfs / "gtfs")), lateness=LATENESS)
    until = events[POSITIONS.name]["event_time"].max()
    assert isinstance(until, int)
    for topic in five.RESULTS:
        assert len(expected[topic.name]) > 5, topic.name
        assert results(log, topic, until + 1).equals(expected[topic.name]), topic.name


def settings(log: Log, tmp_path: Path) -> Settings:
    chosen = Settings().with_options(
        log_url=log.url, state_dir=tmp_path / "state", run_name="five", run_max_events_per_batch=MOST
    )
    return chosen.with_options(spark_partitions=2, spark_master="local[2]")


def test_on_the_local_runner(log: Log, events: Events, gtfs: Path, tmp_path: Path) -> None:
    run_local(
        five.jobs(str(gtfs / "gtfs"), lateness=LATENESS),
        settings=settings(log, tmp_path),
        until_caught_up=True,
    )
    assert_as_computed(log, events, gtfs)


@pytest.mark.spark
def test_on_spark(log: Log, events: Events, gtfs: Path, tmp_path: Path) -> None:
    from bench.spark_foreground import run
    from millrace.runners.spark.scripts import shared_session

    jobs, sizes = five.jobs(str(gtfs / "gtfs"), lateness=LATENESS), list[int]()
    chosen = settings(log, tmp_path)
    run(
        jobs,
        settings=chosen,
        spark=shared_session(),
        until_caught_up=True,
        report=lambda _, results: sizes.append(results.counts["read"]),
    )
    assert len(sizes) > 3, "state goes from batch to batch"
    assert_as_computed(log, events, gtfs)
