"""A run outlives its query, ends without a trace when it is stopped, and has its state to itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace.config import Settings
from millrace.errors import ComponentMissing, RunFailed, StateInUse, StateMismatch, StateUnwritable
from millrace.log import Log
from millrace.runners import java
from millrace.runners.processes import is_alive, list_tree
from millrace.runners.spark import run
from millrace.runners.spark.supervisor import supervise
from millrace.runners.state.folder import encode_checked, lock_folder
from runners.spark.readings import (
    CLIMBS,
    FALLS,
    SPREADS,
    TOTALS,
    append,
    assert_exactly_once,
    climbs,
    falls,
    readings,
    spreads,
    totals,
)

SCRIPT = Path(__file__).with_name("supervised.py")
TIME_LIMIT = 180


@contextmanager
def running(log: Log, settings: Settings, *more: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, str(SCRIPT), log.url, str(settings.state.dir), *more]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        for pid in list_tree(child.pid):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        child.communicate()


def await_batches(child: subprocess.Popen[str], count: int) -> None:
    assert child.stdout is not None
    for _ in range(count):
        line = child.stdout.readline()
        assert line.startswith("batch"), f"the run ended: {child.communicate(timeout=TIME_LIMIT)}"


def query_of(child: subprocess.Popen[str]) -> int:
    """The process that runs the query: the supervisor's child."""
    return list_tree(child.pid)[1]


@pytest.mark.spark
@pytest.mark.parametrize("more", [[], ["standby"]], ids=["alone", "with a standby"])
def test_a_killed_query_starts_again_and_ctrl_c_ends_everything(
    log: Log, settings: Settings, more: list[str]
) -> None:
    """One run through all of it, since each start takes its time;
    windows and patterns, killed in the middle.
    """
    rows = readings(1_200)
    append(log, rows[:600])
    with running(log, settings, *more) as child:
        await_batches(child, 2)
        query = query_of(child)
        first = list_tree(query)
        os.kill(query, signal.SIGKILL)
        append(log, rows[600:])
        await_batches(child, 4)
        assert not any(is_alive(pid) for pid in first), "nothing of the first attempt is left"
        with pytest.raises(StateInUse, match=f"process {child.pid}"):
            run([totals(), spreads()], settings=settings)
        second = list_tree(child.pid)
        child.send_signal(signal.SIGINT)
        _, printed = child.communicate(timeout=TIME_LIMIT)
        assert "KeyboardInterrupt" in printed
        assert "ended by signal 9" in printed
        assert "1 of 4" in printed
        assert not any(is_alive(pid) for pid in second), "Ctrl-C leaves no process behind"
    with running(log, settings, "caught-up") as child:
        _, printed = child.communicate(timeout=TIME_LIMIT)
        assert child.returncode == 0, printed
    assert_exactly_once(log, [totals(), spreads(), climbs(), falls()], [TOTALS, SPREADS, CLIMBS, FALLS])


@pytest.mark.spark
def test_ctrl_c_while_spark_is_still_starting_ends_everything(log: Log, settings: Settings) -> None:
    with running(log, settings) as child:
        lock = settings.state.dir / "test" / "task.pickle"
        while not lock.exists() or len(list_tree(child.pid)) < 3:
            assert child.poll() is None
        started = list_tree(child.pid)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=TIME_LIMIT)
        assert not any(is_alive(pid) for pid in started)


def test_without_java_a_run_says_what_to_do(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ComponentMissing, match="install"):
        run([totals()], settings=settings)


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Lets a short program stand for the child, and a Java that need not be there."""
    program = tmp_path / "python"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys, json\nsay = lambda **s: os.write(int(sys.argv[4]), "
        f"json.dumps(s).encode() + b'\\n')\n{body}\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(java, "find", lambda: None)
    monkeypatch.setattr(supervise, "BACK_OFF", (0.01, 0.01))
    monkeypatch.setattr(supervise, "STANDBY_AGAIN", 0.0)


def test_a_query_that_keeps_failing_is_given_up_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    fake(tmp_path, monkeypatch, "say(event='failed', kind='RunFailed', message='the moon is wrong')")
    with pytest.raises(RunFailed, match=r"3 times in a row.*the moon is wrong.*spark\.log"):
        run([totals()], settings=settings)
    assert len(caplog.records) == 2


def test_progress_gives_the_attempts_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    count = tmp_path / "count"
    count.write_text("0")
    body = f"""
n = int(open({str(count)!r}).read()) + 1
open({str(count)!r}, 'w').write(str(n))
if n < 6:
    say(event='batch', batch=n, counts={{}}, watermarks={{}})
    os._exit(3)
say(event='done')"""
    fake(tmp_path, monkeypatch, body)
    batches: list[int] = []
    run([totals()], settings=settings, report=lambda printed: batches.append(printed["batch"]))
    assert batches == [1, 2, 3, 4, 5]


def test_a_standby_gets_ready_while_another_works_and_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Each process notes that it has begun before it waits for its turn;
    the third is still waiting when all is done.
    """
    begun = tmp_path / "begun"
    begun.touch()
    body = f"""
import time
open({str(begun)!r}, 'a').write(f'{{os.getpid()}}\\n')
number = open({str(begun)!r}).read().count('\\n')
assert sys.stdin.readline() == 'go\\n'
say(event='batch', batch=number, counts={{}}, watermarks={{}})
while open({str(begun)!r}).read().count('\\n') <= number:
    time.sleep(0.01)
if number == 1:
    os._exit(3)
say(event='done')"""
    fake(tmp_path, monkeypatch, body)
    batches: list[int] = []
    run(
        [totals()],
        settings=settings.with_options(spark_standby=True),
        report=lambda printed: batches.append(printed["batch"]),
    )
    assert batches == [1, 2]
    assert ["now" in record.getMessage() for record in caplog.records] == [True]
    pids = [int(line) for line in begun.read_text().split()]
    assert len(pids) == 3
    assert not any(is_alive(pid) for pid in pids)


def test_what_a_user_must_mend_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    fake(tmp_path, monkeypatch, "say(event='failed', kind='StateUnwritable', message='no space')")
    with pytest.raises(StateUnwritable, match="no space"):
        run([totals()], settings=settings)


def test_slots_and_partitions_are_those_of_the_state(settings: Settings) -> None:
    free = settings.with_options(spark_master="local[8]")
    free = free.model_copy(update={"spark": free.spark.model_copy(update={"partitions": None})})
    with lock_folder(settings.state.dir / "test") as folder:
        supervise.prepare_task(folder, [totals()], settings.with_options(run_slots=6), until_caught_up=True)
        task = supervise.prepare_task(folder, [totals()], free, until_caught_up=True)
        assert (task.plan.slots, task.identity.partitions) == (6, 2), (
            "a machine with more cores goes on as it was"
        )
        assert task.move is None
        task = supervise.prepare_task(
            folder, [totals()], settings.with_options(run_slots=4), until_caught_up=True
        )
        assert (task.plan.slots, task.move.old_identity.slots) == (4, 6), (
            "where others are asked for, the state is moved first"
        )
        with pytest.raises(StateMismatch, match="holds the state of totals, not of spreads"):
            supervise.prepare_task(folder, [spreads()], settings, until_caught_up=True)


def test_state_of_the_local_runner_is_refused(settings: Settings) -> None:
    with lock_folder(settings.state.dir / "test") as folder:
        (folder.path / "local.db").touch()
        with pytest.raises(StateMismatch, match="local runner"):
            supervise.prepare_task(folder, [totals()], settings, until_caught_up=True)


def test_a_state_folder_of_another_version_is_refused(settings: Settings) -> None:
    with lock_folder(settings.state.dir / "test") as folder:
        (folder.path / "identity.json").write_bytes(encode_checked({"format": 99}))
        with pytest.raises(StateMismatch, match="a later version"):
            supervise.prepare_task(folder, [totals()], settings, until_caught_up=True)
