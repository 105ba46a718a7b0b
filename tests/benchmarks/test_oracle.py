"""The oracle of chaos knows the job without the engine: both agree where nothing was done to a run,
and it notices what is wrong.
"""

from pathlib import Path

import polars as pl
import pytest

from bench import events
from bench.oracle import expected_counts
from bench.verdict import compare, make_job
from millrace.config import Settings
from millrace.log import Log, open_log
from millrace.log.codecs.codec import encode
from millrace.runners.local import run_local
from millrace.transit.topics import CELL_COUNTS, POSITIONS


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(POSITIONS)
    for part in events.make_positions(150, vehicles=40, seed=5, start=events.START).iter_slices(400):
        log.append(POSITIONS.name, encode(POSITIONS, part))
    settings = Settings().with_options(
        log_url=log.url, state_dir=tmp_path / "state", run_max_events_per_batch=700
    )
    run_local([make_job()], settings=settings, until_caught_up=True)
    return log


def test_an_undisturbed_run_agrees_with_the_oracle(log: Log) -> None:
    assert len(expected_counts(log, POSITIONS.name)) > 500
    assert sum(log.end_offsets("late.vehicle-distribution").values()) > 0, "also on rows that are late"
    verdict = compare(log, 0)
    assert (verdict.missing, verdict.duplicated, verdict.wrong) == (0, 0, 0)


def test_a_result_too_many_and_one_that_is_wrong_are_noticed(log: Log) -> None:
    (cell, start, end), count = next(iter(expected_counts(log, POSITIONS.name).items()))
    pane = {
        "window_start": start,
        "window_end": end,
        "index": 7,
        "settled_index": 7,
        "timing": "late",
        "final": False,
        "op": "+",
    }
    rows = pl.DataFrame(
        {
            "geocell": [cell],
            "count": [count + 1],
            "event_time": [end - 1],
            **{name: [value] for name, value in pane.items()},
        }
    )
    log.append(CELL_COUNTS.name, encode(CELL_COUNTS, rows, ingestion_time=end))
    assert compare(log, 0).wrong >= 2, "by the uninterrupted run and by the oracle"
