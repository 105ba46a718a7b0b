"""No child process outlives its parent."""

import os
import signal
import subprocess
import sys
import time

import pytest

from millrace.runners.processes import is_alive, kill_trees, list_tree
from millrace.runners.signals import stop_signals

pytestmark = pytest.mark.slow

NESTED = """
import subprocess, sys, time
program = "import time; print('up', flush=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
time.sleep(600)
"""


def nested() -> "subprocess.Popen[str]":
    """A process whose child has a session of its own, when both are up."""
    root = subprocess.Popen([sys.executable, "-c", NESTED], stdout=subprocess.PIPE, text=True)
    assert root.stdout is not None
    assert root.stdout.readline() == "up\n"
    return root


def test_a_tree_is_ended_with_those_that_left_the_session() -> None:
    with nested() as root:
        family = list_tree(root.pid)
        assert len(family) == 2
        kill_trees([root.pid], timeout=10)
        assert root.wait(timeout=10) == -signal.SIGKILL
    assert not any(is_alive(pid) for pid in family)


def test_ending_what_has_ended_takes_no_time() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    began = time.monotonic()
    kill_trees([gone.pid], timeout=10)
    assert time.monotonic() - began < 5


def test_a_terminal_that_closes_stops_a_run_unless_it_was_told_not_to_care() -> None:
    with stop_signals() as stopping:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stopping.wait(10)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as stopping:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stopping.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)
