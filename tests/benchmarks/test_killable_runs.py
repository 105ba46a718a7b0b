"""Runs that are started to be killed: whatever ends one otherwise is not taken for success."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.event_feeder import feed_events
from bench.killable_runs import PRELOADED, JumpingClock, KillableRuns, Tally
from millrace.errors import RunFailed
from millrace.log import open_log
from millrace.transit.topics import POSITIONS

ROOT = Path(__file__).parents[2]


class Trial(KillableRuns):
    """What faults do with runs."""

    def await_result_of_a_run(self, *, until_caught_up: bool = False) -> None:
        process = self._start(until_caught_up=until_caught_up)
        try:
            self._await_result(process)
        finally:
            process.kill()
            process.join()


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(POSITIONS)
    return Trial(log.url, tmp_path, seed=1, report=print)


@pytest.mark.slow
def test_a_run_that_ends_by_itself_is_not_taken_for_one_with_results(trial: Trial) -> None:
    with pytest.raises(RunFailed, match="ended by itself with code 0"):
        trial.await_result_of_a_run(until_caught_up=True)
    (trial.state / "chaos" / "identity.json").write_text("no longer what it was")
    with pytest.raises(RunFailed, match=r"ended by itself with code 4: .*identity\.json"):
        trial.await_result_of_a_run()
    with pytest.raises(RunFailed, match=r"the last run ended with code 4: .*identity\.json"):
        trial.catch_up()


@pytest.mark.slow
def test_a_result_is_awaited_for_a_limited_time(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.killable_runs.TIMEOUT", 2.0)
    with pytest.raises(RunFailed, match="no result within 2 s"):  # no events come
        trial.await_result_of_a_run()
    monkeypatch.undo()
    with feed_events(open_log(trial._url), vehicles=20, seed=1, pace=0.05):
        trial.await_result_of_a_run()


def test_the_tally_has_a_line_for_each_kind_of_fault() -> None:
    tally = Tally()
    tally.kills["killed at work"] += 2
    tally.faults["rolling restart"] += 3
    tally.recovery_times["rolling restart"] = [1.0, 9.0, 2.0]
    assert list(tally.lines()) == [
        "   2 × killed at work",
        "   3 × rolling restart; next result after 2.0 s (median), 9.0 s (most)",
    ]


def test_a_clock_jumps_for_a_second_and_is_seen_to_even_if_it_was_not_asked_in_that_second() -> None:
    for asked, seen in (
        ([0, 999, 1_000, 1_999, 2_000, 9_000], [0, 0, 50, 50, 0, 0]),
        ([0, 700, 4_000, 4_001], [0, 0, 50, 0]),
    ):
        moments = iter(asked)
        clock = JumpingClock(50, wall=lambda: 0, elapsed=lambda moments=moments: 7 + next(moments))  # type: ignore[misc] # bound at once
        assert [clock() for _ in asked] == seen


@pytest.mark.slow
def test_what_is_imported_before_runs_are_forked_starts_no_pool_of_threads() -> None:
    """The threads of a pool are missing in a forked process, which waits for them for ever."""
    names = (
        "print([Path(f'/proc/self/task/{number}/comm').read_text() for number in "
        "os.listdir('/proc/self/task')])"
    )
    program = f"import os; from pathlib import Path; import {', '.join(PRELOADED)}; {names}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "polars-0" not in done.stdout
    assert "tokio" not in done.stdout
