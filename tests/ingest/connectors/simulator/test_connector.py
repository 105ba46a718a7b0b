"""The simulated city as a connector: the same events however they are fetched, each when it is due."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from ingest.clocks import FakeClock
from ingest.connectors.simulator.cities import MORNING, calls, events, live, polled
from millrace.errors import ConfigError
from millrace.ingest import connector
from millrace.ingest.connectors.simulator import Simulator
from millrace.ingest.connectors.simulator.city import CityPlan
from millrace.ingest.contract import EventPassthrough, MessageBatch
from millrace.ingest.pipeline import ingest
from millrace.log import open_log
from millrace.transit import ARRIVALS, DEPARTURES, DOOR_EVENTS, POSITIONS

SMALL = CityPlan(scale=0.05, volume="mean")


def test_events_do_not_depend_on_how_much_is_made_or_taken_at_once() -> None:
    expected = events(SMALL, seconds=8, stretch=8)
    assert len(expected) > 200
    for stretch in (1, 3):
        assert_frame_equal(events(SMALL, seconds=8, stretch=stretch), expected)
    for limit, wait in ((1, 9), (13, 20), (100_000, 700)):
        assert_frame_equal(polled(live(FakeClock(MORNING), duration="8s"), limit=limit, wait=wait), expected)


def test_as_fast_as_possible_gives_the_same_events() -> None:
    fast = Simulator(
        scale=0.05,
        volume="mean",
        duration="20s",
        speed="max",
        start="2026-03-02T06:00:00Z",
        clock=FakeClock(),
    )
    assert_frame_equal(polled(fast, limit=10_000), polled(live(FakeClock(MORNING)), limit=10_000))


def test_what_happens_at_stops_does_not_depend_on_it_either() -> None:
    plan = CityPlan(scale=0.2, volume="mean", calls=True)
    expected, *others = (calls(plan, seconds=40, stretch=stretch) for stretch in (40, 1, 7))
    assert list(expected) == [ARRIVALS.name, DEPARTURES.name, DOOR_EVENTS.name]
    for name, frame in expected.items():
        assert len(frame) > 20
        for other in others:
            assert_frame_equal(other[name], frame)


def test_no_batch_is_larger_than_asked_for_though_it_holds_several_topics() -> None:
    simulator = Simulator(scale=0.2, volume="mean", duration="8s", events="all", clock=FakeClock(MORNING))
    found: set[str] = set()
    with simulator:
        while (batch := simulator.poll(limit=7, wait=50)) is not None:
            assert len(batch) <= 7
            found.update(topic.name for topic, _ in batch.rows)
    assert found == {topic.name for topic in simulator.topics}


def test_another_seed_is_another_city() -> None:
    one, other = (
        events(CityPlan(seed=seed, scale=0.05, volume="mean"), seconds=3)["latitude"].sort()
        for seed in (1, 2)
    )
    assert not one.equals(other)


def test_an_event_comes_when_it_is_due() -> None:
    clock = FakeClock(MORNING)
    with live(clock) as simulator:
        for _ in range(100):
            before = clock.now()
            batch = simulator.poll(limit=10_000, wait=50)
            assert batch is not None
            assert clock.now() <= before + 51
            for _, rows in batch.rows:
                assert rows["ingestion_time"].is_between(before - 1, clock.now()).all()


def test_what_was_missed_while_the_machine_slept_comes_at_once() -> None:
    clock = FakeClock(MORNING)
    with live(clock, duration="10m") as simulator:
        simulator.poll(limit=10_000, wait=50)
        clock.time += 300_000
        batch = simulator.poll(limit=10_000, wait=50)
        assert batch is not None
        ((_, rows),) = batch.rows
    assert (len(rows), clock.now()) == (10_000, MORNING + 300_050)
    assert rows["ingestion_time"].is_sorted()


def test_at_ten_times_the_speed_the_city_runs_ahead_of_the_clock() -> None:
    clock = FakeClock(MORNING)
    rows = polled(Simulator(scale=0.05, volume="mean", duration="20s", speed=10, clock=clock), limit=10_000)
    assert clock.now() - MORNING == pytest.approx(2_000, abs=60)
    assert rows["ingestion_time"].max() == pytest.approx(MORNING + 20_000, abs=200)


def test_a_city_that_is_started_again_goes_on_where_it_would_have_been() -> None:
    long = events(SMALL, start=MORNING, seconds=120)
    again = events(SMALL, start=MORNING + 60_000, seconds=60)
    here, there = (
        frame.filter(pl.col("event_time") >= MORNING + 70_000)
        .select("vehicle_id", "event_time", "latitude", "longitude")
        .unique()
        for frame in (long, again)
    )
    assert len(there) > 1_000
    assert len(there.join(here, on=there.columns, how="anti")) <= 0.01 * len(there)


def test_events_go_to_the_log_without_a_processor(tmp_path: Path) -> None:
    log, clock = open_log(str(tmp_path / "log")), FakeClock(MORNING)
    simulator = live(clock)
    counts = ingest(simulator, EventPassthrough(simulator.topics), log, clock=clock, wait=1_000)
    assert counts.written == {POSITIONS.name: counts.received}
    assert (
        sum(log.end_offsets(POSITIONS.name).values()) == counts.received == simulator.acknowledged_count > 500
    )
    log.close()


def test_a_message_where_events_are_expected_is_a_reject() -> None:
    done = EventPassthrough((POSITIONS,)).process_many(MessageBatch([""], [b"x"], [1], [1], "s"))
    assert [reject.reason for reject in done.rejects] == ["no processor"]


@pytest.mark.parametrize(("options", "message"), [
    ({"scale": 0}, "scale=0 is not allowed; use a number from 0.01 to 1000"),
    ({"scale": "big"}, "scale='big' is not allowed"),
    ({"scale": True}, "scale=True is not allowed"),
    ({"seed": 1.5}, "seed=1.5 is not a whole number"),
    ({"seed": "x"}, "seed='x' is not a whole number"),
    ({"speed": -1}, "speed=-1 is not allowed; use a number from 0.001 to 1e+06, such as 1 or 10, or 'max'"),
    ({"volume": "loud"}, "volume='loud' is unknown; use 'curve'"),
    ({"start": "yesterday"}, "start='yesterday' is not a time; write it like '2026-03-02T06:00:00Z'"),
    ({"duration": "0s"}, "duration='0s' must be longer than zero"),
    ({"duration": "long"}, "duration='long' is not a duration"),
    ({"hard_stops": 100}, "hard_stops=100 is not allowed; use a number from 0 to 20"),
    ({"events": "some"}, "events='some' is unknown; use 'positions', or 'all'"),
    ({"truth": 5}, "truth=5 is not a folder name"),
    ({"sed": 1}, "no option 'sed'; did you mean 'seed'?"),
])  # fmt: skip
def test_a_wrong_option_names_the_value_and_what_is_allowed(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connector("simulator", **options)
    assert message in str(caught.value)
