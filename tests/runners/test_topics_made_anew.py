"""A recreated topic is distinguished from the one before, however far it has grown."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from log.conftest import within
from millrace.devtools.brokers import Cluster
from millrace.errors import OffsetGone
from millrace.log import Log, open_log
from millrace.log.kafka.log import KafkaLog
from millrace.runners import batches
from millrace.runners.batches import Offsets
from millrace.runners.local import Engine, run_local
from runners.stopping_jobs import EVENTS, GOOD, fill, good, settings, written


class Killed(Exception):
    """What stands for a process that dies."""


Anew = Callable[[], Log]
"""Removes the topic of events and makes it anew, empty; the log, as a new process opens it."""


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[tuple[Log, Anew]]:
    """The file of the inputs is lost, that of the results is not."""
    folder, opened = tmp_path / "log", [open_log(f"embedded:{tmp_path / 'log'}")]

    def anew() -> Log:
        opened[-1].close()
        for file in folder.glob("inputs.db*"):
            file.unlink()
        opened.append(open_log(f"embedded:{folder}"))
        opened[-1].ensure(EVENTS)
        return opened[-1]

    yield opened[0], anew
    opened[-1].close()


@pytest.fixture
def on_kafka(brokers: Cluster) -> Iterator[tuple[Log, Anew]]:
    url = f"{brokers.url}/anew-{uuid.uuid4().hex[:8]}"
    opened = [open_log(url)]

    def anew() -> Log:
        (old,) = opened
        assert isinstance(old, KafkaLog)
        name = old.kafka_name(EVENTS.name)
        old._admin.delete_topics([name])[name].result(30)
        with within() as waiting:
            while waiting(old._topics.exists(EVENTS.name)):
                pass
        opened.append(open_log(url))
        opened[-1].ensure(EVENTS)
        return opened[-1]

    yield opened[0], anew
    for log in opened:
        log.close()


@pytest.fixture(params=["embedded", pytest.param("on_kafka", marks=pytest.mark.kafka)])
def place(request: pytest.FixtureRequest) -> tuple[Log, Anew]:
    found: tuple[Log, Anew] = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("grown", [1_000, 3_000])
def test_a_topic_that_has_grown_beyond_the_place_that_was_reached_is_not_taken_for_the_old_one(
    place: tuple[Log, Anew], tmp_path: Path, grown: int
) -> None:
    log, anew = place
    fill(log, 0, 1_000)
    run_local([good()], settings=settings(log, tmp_path, "run"), until_caught_up=True)
    before = written(log, GOOD)
    log = anew()
    fill(log, 200_000, grown)
    with pytest.raises(OffsetGone, match=r"input\.events was made anew .*run\.on_data_loss"):
        run_local([good()], settings=settings(log, tmp_path, "run"), until_caught_up=True)
    assert written(log, GOOD) == before
    run_local(
        [good()], settings=settings(log, tmp_path, "run", run_on_data_loss="earliest"), until_caught_up=True
    )
    fill(log, 500_000, 1_000)
    run_local([good()], settings=settings(log, tmp_path, "run"), until_caught_up=True)
    sums = sum(row[2] for row in written(log, GOOD) if 200_000 < row[0] < 300_000)
    assert sums == sum(range(200_000, 200_000 + grown)), "none is skipped"


def test_with_the_latest_only_what_comes_from_now_on_is_read(place: tuple[Log, Anew], tmp_path: Path) -> None:
    log, anew = place
    fill(log, 0, 1_000)
    run_local([good()], settings=settings(log, tmp_path, "run"), until_caught_up=True)
    log = anew()
    fill(log, 200_000, 3_000)
    chosen = settings(log, tmp_path, "run", run_on_data_loss="latest")
    run_local([good()], settings=chosen, until_caught_up=True)
    fill(log, 500_000, 1_000)
    fill(log, 900_000, 1_000)
    run_local([good()], settings=chosen, until_caught_up=True)
    assert {row[0] for row in written(log, GOOD)} & set(range(200_000, 520_000, 10_000)) == {510_000}


def test_a_batch_that_was_begun_over_the_old_topic_is_not_repeated_over_the_new_one(
    place: tuple[Log, Anew], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, anew = place
    fill(log, 0, 1_000)
    run_local([good()], settings=settings(log, tmp_path, "run"), until_caught_up=True)
    fill(log, 1_000, 1_000)

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "step", die)
        with pytest.raises(Killed):
            run_local([good()], settings=settings(log, tmp_path, "run"), until_caught_up=True)
    log = anew()
    fill(log, 200_000, 3_000)
    with pytest.raises(OffsetGone, match="begun and not finished"):
        run_local([good()], settings=settings(log, tmp_path, "run"))
    run_local(
        [good()], settings=settings(log, tmp_path, "run", run_on_data_loss="earliest"), until_caught_up=True
    )
    fill(log, 500_000, 1_000)
    run_local([good()], settings=settings(log, tmp_path, "run"), until_caught_up=True)
    assert sum(row[2] for row in written(log, GOOD) if 200_000 < row[0] < 300_000) == sum(
        range(200_000, 203_000)
    )


def test_a_copy_of_a_log_has_the_same_topics(tmp_path: Path) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    fill(log, 0, 10)
    log.close()
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    other, log = open_log(f"embedded:{tmp_path / 'copy'}"), open_log(log.url)
    assert log.identity(EVENTS.name) == other.identity(EVENTS.name) is not None
    for each in (log, other):
        each.close()


def test_state_of_before_ids_were_kept_learns_them(tmp_path: Path) -> None:
    old = Offsets.from_json('{"topics": {"input.events": {"0": 5, "1": 5}}, "clock": 7}')
    assert old.ids == {}
    log = open_log(f"embedded:{tmp_path / 'log'}")
    fill(log, 0, 20)
    learned = batches.plan_batch_end(log, old, now=8)
    assert learned.ids == {"input.events": log.identity("input.events")}
    assert learned.recreated_topics(old) == set()
    assert Offsets.from_json(learned.to_json()) == learned
    log.close()
