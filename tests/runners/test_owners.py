"""An output topic is written by one state: another one is refused, unless it is to take over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.errors import Fenced, StateMismatch
from millrace.log import Log, Outgoing, open_log
from millrace.log.owners import OWNERS, Owner, claim, owners
from millrace.runners.folder import hold
from millrace.runners.local import Hooks, run_local
from millrace.runners.savepoint import save
from runners.stopping_jobs import EVENTS, GOOD, fill, good, settings, written


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(EVENTS)
    fill(log, 0, 25_000)
    yield log
    log.close()


def test_the_same_run_with_another_state_folder_is_refused_and_writes_nothing(log: Log, tmp_path: Path) -> None:
    run_local([good()], settings=settings(log, tmp_path / "one", "run"), until_caught_up=True)
    before = written(log, GOOD)
    for state, name in (("two", "run"), ("one", "other"), ("three", "other")):
        with pytest.raises(
            StateMismatch, match=r"topic 'analytics\.good' is written by run 'run' with another state .*backfill.*--take-over"
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
    cut = first.changed(run_max_events_per_batch=500)
    with pytest.raises(Fenced):
        run_local([good()], settings=cut, hooks=Hooks(stop=lambda: next(batches), report=taken))
    assert len(written(log, GOOD)) > len(before)
    with pytest.raises(StateMismatch, match="another state"):
        run_local([good()], settings=first, until_caught_up=True)
    run_local([good()], settings=second, until_caught_up=True)


def test_a_state_restored_from_a_savepoint_is_the_heir_of_the_one_that_made_it(log: Log, tmp_path: Path) -> None:
    first, second = settings(log, tmp_path / "one", "run"), settings(log, tmp_path / "two", "run")
    run_local([good()], settings=first, until_caught_up=True)
    with hold(first.state.dir / "run") as folder:
        save(folder, tmp_path / "a.savepoint")
    run_local([good()], settings=second, until_caught_up=True, restore=tmp_path / "a.savepoint")
    with pytest.raises(StateMismatch, match="another state"):
        run_local([good()], settings=first, until_caught_up=True)


def test_of_two_claims_at_once_the_first_in_the_log_counts(log: Log) -> None:
    one, two = Owner("1", "run"), Owner("2", "run")
    claim(log, ["a", "b"], one, folder="x")
    claim(log, ["b", "a"], one, folder="x")
    assert log.ends(OWNERS) == {0: 2}, "claimed once"
    with pytest.raises(StateMismatch):
        claim(log, ["a", "c"], two, folder="y")
    assert owners(log) == {"a": one, "b": one}
    claim(log, ["a"], two, folder="y", take_over=True)
    import pyarrow as pa

    log.append(OWNERS, Outgoing(pa.array([b"\xff", b"{}", b'{"topic": "a", "state": "3", "run": "z", "instead": "1"}'], pa.binary())))
    assert owners(log) == {"a": two, "b": one}, "what others write there, or claim from an owner that is no longer one, does not count"
