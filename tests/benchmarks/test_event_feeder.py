"""Events flow into a log until the feeder is stopped; an error that ends it before is raised."""

from pathlib import Path

import pytest

from bench.event_feeder import EventFeeder, feed_events
from log.conftest import within
from millrace.errors import TopicMissing
from millrace.log import open_log
from millrace.log.codecs.codec import decode
from millrace.transit.topics import POSITIONS


def test_events_flow_some_of_them_unreadable_until_the_block_is_left(tmp_path: Path) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(POSITIONS)
    with feed_events(log, vehicles=5, seed=1, pace=0.001), within(60) as waiting:
        while waiting(sum(log.end_offsets(POSITIONS.name).values()) < 30):
            pass
    ends = log.end_offsets(POSITIONS.name)
    read = [decode(POSITIONS, part, log.read(POSITIONS.name, part, 0, end)) for part, end in ends.items()]
    assert sum(len(each.rows) for each in read) > 20
    assert sum(len(each.dead) for each in read) > 0
    assert log.end_offsets(POSITIONS.name) == ends, "nothing comes later"


def test_what_ended_a_feeder_is_raised_when_it_is_told_to_finish(tmp_path: Path) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    feeder = EventFeeder(log, vehicles=5, seed=1, pace=0.001)
    feeder.start()
    feeder.join(30)
    assert not feeder.is_alive(), "there is no topic to append to"
    with pytest.raises(TopicMissing):
        feeder.finish()
    with pytest.raises(TopicMissing), feed_events(log, vehicles=5, seed=1, pace=0.001) as feeder:
        feeder.join(30)
