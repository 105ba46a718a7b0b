"""A log of each kind, and processes that are not left behind."""

import itertools
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from millrace.devtools.brokers import Cluster
from millrace.log import Log, open_log

LOGS = ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)]
"""Every implementation stands the same tests; a new one is added here and in `url`."""

Start: TypeAlias = Callable[..., BaseProcess]
_numbers = itertools.count()


@pytest.fixture(params=LOGS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty log can be opened."""
    if request.param == "embedded":
        return f"embedded:{tmp_path / 'log'}"
    brokers: Cluster = request.getfixturevalue("brokers")
    return f"{brokers.url}/test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    """An empty log."""
    opened = open_log(url)
    yield opened
    opened.close()


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Runs a function of `log.children` in a process of its own, forked so that it starts at once.

    From this process, or, as clients of Kafka do not survive that, from one that has loaded everything and
    has no threads.
    """
    on_kafka = request.node.get_closest_marker("kafka") is not None
    context: Any = multiprocessing.get_context("forkserver" if on_kafka else "fork")
    if on_kafka:
        multiprocessing.set_forkserver_preload(["log.children", "log.preloaded"])
    pa.array([b""])  # makes pyarrow look for pandas here and now, and not in every process anew
    started: list[BaseProcess] = []

    def run(target: Callable[..., None], *args: Any) -> BaseProcess:
        process: BaseProcess = context.Process(target=target, args=args, daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # newer Pythons warn of threads, of which these functions use none
            process.start()
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.join()


@contextmanager
def within(seconds: float = 30) -> Iterator[Callable[[bool], bool]]:
    """`while waiting(not condition): ...` ends when the condition holds,
    and fails the test when it takes too long.
    """
    limit = time.monotonic() + seconds

    def waiting(still: bool) -> bool:
        if still and time.monotonic() > limit:
            pytest.fail(f"waited longer than {seconds} s")
        if still:
            time.sleep(0.001)
        return still

    yield waiting
