"""Bits are flipped in copies of a log and its state: runs over them refuse, or are right;
one that is wrong is noticed.
"""

from pathlib import Path

import pytest

from bench import events
from bench.bit_flips import flip_bits
from bench.killable_runs import settings
from bench.verdict import make_job
from millrace.log import Log, OutgoingRecords, open_log
from millrace.log.codecs.codec import encode
from millrace.runners.local import run_local
from millrace.transit.topics import CELL_COUNTS, POSITIONS

pytestmark = pytest.mark.slow


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A log with half of its events read, as chaos leaves one: a run has something to do."""
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(POSITIONS)
    first, *others = events.make_positions(100, vehicles=20, seed=5, start=events.START).iter_slices(1_000)
    log.append(POSITIONS.name, encode(POSITIONS, first))
    run_local([make_job()], settings=settings(log.url, tmp_path / "state"), until_caught_up=True)
    for part in others:
        log.append(POSITIONS.name, encode(POSITIONS, part))
    return log


def test_runs_over_damaged_copies_refuse_or_are_right(log: Log, tmp_path: Path) -> None:
    lines: list[str] = []
    outcomes = flip_bits(tmp_path / "log", tmp_path / "state", tmp_path, flips=6, seed=1, report=lines.append)
    assert outcomes.total() == len(lines) == 6
    assert outcomes.keys() <= {"refused", "unharmed", "not read"}
    assert outcomes["refused"] > 0


def test_a_run_with_wrong_results_is_not_taken_for_unharmed(log: Log, tmp_path: Path) -> None:
    part = next(part for part, end in log.end_offsets(CELL_COUNTS.name).items() if end)
    record = log.read(CELL_COUNTS.name, part, 0, 1)
    log.append(CELL_COUNTS.name, OutgoingRecords(record.values, record.keys))
    outcomes = flip_bits(tmp_path / "log", tmp_path / "state", tmp_path, flips=6, seed=1, report=print)
    assert outcomes["wrong"] > 0
    assert outcomes["unharmed"] == 0
