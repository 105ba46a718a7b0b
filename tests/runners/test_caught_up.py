"""A run that is to catch up exits with 0 only when it has, and says so in its last line."""

import sys
from pathlib import Path

import polars as pl
import pytest

import millrace as mr
from millrace.cli.main import main
from millrace.errors import RunFailed
from millrace.log import open_log
from millrace.runners import batches
from runners.stopping_jobs import BAD, EVENTS, events, fill, settings

PROGRAM = """
from runners.stopping_jobs import good
job = good()
"""


def test_the_last_line_says_that_it_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "caught_up_job.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    log = open_log("embedded:log")
    fill(log, 0, 1_000)
    log.close()
    words = [
        "run",
        "caught_up_job.py:job",
        "--on",
        "local",
        "--log",
        "embedded:log",
        "--state",
        "state",
        "--until-caught-up",
    ]
    assert main(words) == 0
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].endswith("caught up: all that the log held at the start is read (1,000 events)")


def test_a_run_that_ends_before_it_has_caught_up_fails(tmp_path: Path) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    fill(log, 0, 10)
    target = batches.plan_batch_end(log, batches.beginning_offsets(log, [EVENTS]), now=0)
    batches.check_caught_up(target, target)
    with pytest.raises(RunFailed, match=r"before it had caught up: input\.events\[0\] was read up to 0 of 5"):
        batches.check_caught_up(target, None)
    log.close()


def test_code_that_ends_the_process_does_not_end_a_run_as_if_all_were_done(tmp_path: Path) -> None:
    def leave(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height:
            sys.exit(0)
        return frame

    log = open_log(f"embedded:{tmp_path / 'log'}")
    fill(log, 0, 1_000)
    job = mr.Job("bad", events().map_batches(leave).group_by("key").sum("number", name="total").write(BAD))
    with pytest.raises(RunFailed):
        mr.run(job, on="local", settings=settings(log, tmp_path, "x"), until_caught_up=True)
    log.close()
