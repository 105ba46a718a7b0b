"""An output topic is written by one state: another one is refused, unless it is to take over."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from millrace.errors import Fenced, StateMismatch
from millrace.log import Log, OutgoingRecords, open_log
from millrace.log.owners import OWNERS, Owner, claim_topics, read_owners
from millrace.runners.backfill import backfill, version_job
from millrace.runners.local import Hooks, run_local
from millrace.runners.state.folder import lock_folder
from millrace.runners.state.savepoint import save
from runners.stopping_jobs import EVENTS, GOOD, fill, good, settings, written


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    on_kafka = request.param == "kafka"
    log = open_log(
        f"{request.getfixturevalue('brokers').url}/owners-{uuid.uuid4().hex[:8]}"
        if on_kafka
        else f"embedded:{tmp_path / 'log'}"
    )
    log.ensure(EVENTS)
    fill(log, 0, 25_000)
    yield log
    log.close()


def test_the_same_run_with_another_state_folder_is_refused_and_writes_nothing(
    log: Log, tmp_path: Path
) -> None:
    run_local([good()], settings=settings(log, tmp_path / "one", "run"), until_caught_up=True)
    before = written(log, GOOD)
    for state, name in (("two", "run"), ("one", "other"), ("three", "other")):
        with pytest.raises(
            StateMismatch,
            match=(
                r"topic 'analytics\.good' is written by run 'run' with another state "
                ".*backfill.*--take-over"
            ),
        ):
            run_local([good()], settings=settings(log, tmp_path / state, name), until_caught_up=True)
    assert written(log, GOOD) == before
    run_local([good()], settings=settings(log, tmp_path / "one", "run"), until_caught_up=True)


def test_a_run_that_takes_over_stops_the_one_before(log: Log, tmp_path: Path) -> None:
    first, second = settings(log, tmp_path / "one", "run"), settings(log, tmp_path / "two", "run")
    run_local([good()], settings=first, until_caught_up=True)
    before = written(log, GOOD)

    def taken(_: object) -> None:
        run_local([good()], settings=second, until_caught_up=True, take_over=True)

    fill(log, 25_000, 1_000)
    batches = iter([False, False, True])
    cut = first.with_options(run_max_events_per_batch=500)
    with pytest.raises(Fenced):
        run_local([good()], settings=cut, hooks=Hooks(stop=lambda: next(batches), report=taken))
    assert len(written(log, GOOD)) > len(before)
    with pytest.raises(StateMismatch, match="another state"):
        run_local([good()], settings=first, until_caught_up=True)
    run_local([good()], settings=second, until_caught_up=True)


def test_a_state_restored_from_a_savepoint_is_the_heir_of_the_one_that_made_it(
    log: Log, tmp_path: Path
) -> None:
    first, second = settings(log, tmp_path / "one", "run"), settings(log, tmp_path / "two", "run")
    run_local([good()], settings=first, until_caught_up=True)
    with lock_folder(first.state.dir / "run") as folder:
        save(folder, tmp_path / "a.savepoint")
    run_local([good()], settings=second, until_caught_up=True, restore=tmp_path / "a.savepoint")
    with pytest.raises(StateMismatch, match="another state"):
        run_local([good()], settings=first, until_caught_up=True)


def test_of_two_claims_at_once_the_first_in_the_log_counts(log: Log) -> None:
    one, two = Owner("1", "run"), Owner("2", "run")
    claim_topics(log, ["a", "b"], one, folder="x")
    claim_topics(log, ["b", "a"], one, folder="x")
    assert log.end_offsets(OWNERS) == {0: 2}, "claimed once"
    with pytest.raises(StateMismatch):
        claim_topics(log, ["a", "c"], two, folder="y")
    assert read_owners(log) == {"a": one, "b": one}
    claim_topics(log, ["a"], two, folder="y", take_over=True)
    log.append(
        OWNERS,
        OutgoingRecords(
            pa.array(
                [b"\xff", b"{}", b'{"topic": "a", "state": "3", "run": "z", "instead": "1"}'], pa.binary()
            )
        ),
    )
    assert read_owners(log) == {"a": two, "b": one}, (
        "what others write there, or claim from an owner that is no longer one, does not count"
    )


CHILD = """
import sys
from pathlib import Path
from millrace.log import open_log
from millrace.runners.local import run_local
from runners.stopping_jobs import good, settings
restore = Path(sys.argv[3]) if len(sys.argv) > 3 else None
chosen = settings(open_log(sys.argv[1]), Path(sys.argv[2]), "run")
run_local([good()], settings=chosen, until_caught_up=True, restore=restore, take_over=restore is None)
"""


def killed(place: str, log: Log, state: Path, *restore: Path) -> None:
    """A run in a process of its own, which dies at a place."""
    env = {
        **os.environ,
        "MILLRACE_FAULT": place,
        "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[1])]),
    }
    died = subprocess.run(
        [sys.executable, "-c", CHILD, log.url, state, *restore], env=env, capture_output=True, text=True
    )
    assert died.returncode == -signal.SIGKILL, died.stderr


def test_a_run_that_was_killed_while_it_took_over_stops_the_one_before_when_it_starts_again(
    log: Log, tmp_path: Path
) -> None:
    first, second = settings(log, tmp_path / "one", "run"), settings(log, tmp_path / "two", "run")
    run_local([good()], settings=first, until_caught_up=True)
    fill(log, 25_000, 2_000)
    started = 0

    def taken(_: object) -> None:
        nonlocal started
        started += 1
        if started == 1:
            killed("claimed", log, tmp_path / "two")
        if started == 2:  # so far nobody has stopped it, and nobody else writes
            run_local([good()], settings=second, until_caught_up=True)

    batches = iter([False] * 3 + [True])
    with pytest.raises(Fenced):
        run_local(
            [good()],
            settings=first.with_options(run_max_events_per_batch=500),
            hooks=Hooks(stop=lambda: next(batches), report=taken),
        )
    assert started == 2
    before = written(log, GOOD)
    fill(log, 40_000, 1_000)
    run_local([good()], settings=second, until_caught_up=True)
    assert len(written(log, GOOD)) > len(before)
    assert log.end_offsets(OWNERS) == {0: 3}, "two claims, and one record that the first owner is stopped"


@pytest.mark.parametrize("place", ["restoring", "claimed"])
def test_a_restore_that_was_killed_is_done_again_or_goes_on(log: Log, tmp_path: Path, place: str) -> None:
    first, second = settings(log, tmp_path / "one", "run"), settings(log, tmp_path / "two", "run")
    run_local([good()], settings=first, until_caught_up=True)
    before = written(log, GOOD)
    with lock_folder(first.state.dir / "run") as folder:
        save(folder, tmp_path / "a.savepoint")
    killed(place, log, tmp_path / "two", tmp_path / "a.savepoint")
    if place == "restoring":
        with pytest.raises(StateMismatch, match="run it with --restore FILE again"):
            run_local([good()], settings=second, until_caught_up=True)
        run_local([good()], settings=second, until_caught_up=True, restore=tmp_path / "a.savepoint")
    else:
        run_local([good()], settings=second, until_caught_up=True)
    assert written(log, GOOD) == before, "nothing is written twice"
    with pytest.raises(StateMismatch, match="another state"):
        run_local([good()], settings=first, until_caught_up=True)


def test_a_topic_is_inherited_once(log: Log) -> None:
    one, heir = Owner("1", "run"), Owner("2", "run")
    claim_topics(log, ["a"], one, folder="x")
    claim_topics(log, ["a"], heir, folder="y", inherits_from="1")
    claim_topics(log, ["a"], one, folder="x", take_over=True)
    with pytest.raises(StateMismatch):
        claim_topics(log, ["a"], heir, folder="y", inherits_from="1")
    with pytest.raises(StateMismatch):
        claim_topics(log, ["a"], Owner("3", "run"), folder="z", inherits_from="2")
    assert read_owners(log) == {"a": one}


@pytest.mark.parametrize(
    "poison",
    [
        b'{"topic": ["a"], "state": "3", "run": "z"}',
        b"[" * 100_000,
        b'{"topic": "a", "state": {}, "run": 1}',
        None,
    ],
)
def test_a_record_that_says_nothing_is_passed_over(log: Log, poison: bytes | None) -> None:
    claim_topics(log, ["a"], Owner("1", "run"), folder="x")
    log.append(OWNERS, OutgoingRecords(pa.array([poison], pa.binary())))
    assert read_owners(log) == {"a": Owner("1", "run")}


def test_what_was_made_of_given_events_is_not_written_once_more_by_a_run(log: Log, tmp_path: Path) -> None:
    chosen, rows = (
        settings(log, tmp_path / "one", "run"),
        pl.DataFrame({"key": ["a"] * 9, "number": range(9), "event_time": range(9)}),
    )
    backfill(good(), version="v2", events=rows, settings=chosen)
    made = version_job(good(), "v2")
    with pytest.raises(StateMismatch, match=r"'analytics\.good\.v2' is written by run 'good\.v2'"):
        run_local([made], settings=chosen.with_options(run_name="good.v2"), until_caught_up=True)
