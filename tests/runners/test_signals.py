"""A run that hangs can be stopped, and its lock is not kept by processes that it has forked."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from millrace.log import open_log
from millrace.runners.processes import is_alive, list_tree
from millrace.runners.signals import stop_signals
from millrace.runners.state.folder import lock_folder
from runners.stopping_jobs import BAD, GOOD, bad, fill, good, settings, written

SCRIPT = Path(__file__).with_name("hanging_child.py")


@contextmanager
def hanging(tmp_path: Path, time_limit: float, runner: str = "local") -> Iterator["subprocess.Popen[str]"]:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    fill(log, 0, 25_000)
    log.close()
    words = [sys.executable, str(SCRIPT), log.url, str(tmp_path / "state"), str(time_limit), runner]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            deadline = time.monotonic() + 120
            while not (tmp_path / "state.hangs").exists():
                assert child.poll() is None, child.communicate()
                assert time.monotonic() < deadline, "it did not come to the job that hangs"
                time.sleep(0.05)
            yield child
        finally:
            for pid in list_tree(child.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_the_batch_of_a_job_that_hangs(tmp_path: Path, number: signal.Signals) -> None:
    with hanging(tmp_path, 0.2) as child:
        child.send_signal(number)
        assert child.stderr is not None
        line = child.stderr.readline()
        assert "job bad is still at work on its batch" in line
        child.send_signal(number)
        _, rest = child.communicate(timeout=30)
        assert child.returncode == 130, rest
    log = open_log(f"embedded:{tmp_path / 'log'}")
    from millrace.runners.local import run_local

    run_local([good(), bad(None)], settings=settings(log, tmp_path / "state", "test"), until_caught_up=True)
    assert written(log, GOOD) == written(log, BAD) != []
    log.close()


@pytest.mark.spark
def test_the_second_signal_ends_a_query_that_hangs_and_all_its_processes(tmp_path: Path) -> None:
    with hanging(tmp_path, 0.2, "spark") as child:
        child.send_signal(signal.SIGTERM)
        assert child.stderr is not None
        assert "the query of good, bad is still at work on its batch" in child.stderr.readline()
        processes = list_tree(child.pid)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
        assert child.returncode == 130
        assert not any(map(is_alive, processes))


def test_the_first_signal_is_asked_for_and_the_second_one_raises() -> None:
    with stop_signals() as stopping:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(5)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    begun, begins = os.pipe()
    with lock_folder(tmp_path / "state"):
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.write(begins, b"x")
            os.read(reader, 1)  # until the test is over
            os._exit(0)
        assert os.read(begun, 1) == b"x"
    with lock_folder(tmp_path / "state", timeout=0.0):
        pass
    for descriptor in (writer, reader, begun, begins):
        os.close(descriptor)
    assert os.waitpid(child, 0)[1] == 0
