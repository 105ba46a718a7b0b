"""Who cannot be reached is named within seconds, with the reason."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millrace.errors import ConfigError
from millrace.log.kafka.broker_errors import _TEXT_SUFFIX
from millrace.runners.spark.supervisor.supervise import _check_master


def test_a_master_that_nobody_is_at_is_refused_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(ConfigError, match=r"'spark://127\.0\.0\.1:1' cannot be reached \(.*refused"):
        _check_master("spark://127.0.0.1:1")
    with pytest.raises(ConfigError, match="cannot be reached"):
        _check_master("spark://127.0.0.1")
    assert time.monotonic() - started < 5


def test_one_of_several_masters_is_enough_and_others_are_left_to_spark() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        _check_master(f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}")
    for master in ("local[2]", "yarn", "k8s://https://127.0.0.1:1"):
        _check_master(master)


@pytest.mark.parametrize("state", [
    " (after 0ms in state CONNECT)", " (after 1ms in state CONNECT, 1 identical error(s) suppressed)",
])  # fmt: skip
def test_the_reason_of_kafka_is_shown_without_counters(state: str) -> None:
    assert _TEXT_SUFFIX.sub("", f"Connection refused{state}") == "Connection refused"


@pytest.mark.slow
@pytest.mark.parametrize("command", [
    ["topics", "list"], ["ingest", "simulator"], ["run", "vehicle-distribution"],
])  # fmt: skip
def test_an_unreachable_kafka_is_named_within_seconds_and_waiting_can_be_stopped(
    command: list[str], tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "millrace.cli.main", *command, "--log", "kafka://127.0.0.1:1"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        lines = iter(waiting.stderr)
        line = next(line for line in lines if "waiting for Kafka" in line)
        assert "at 127.0.0.1:1 (Connect to ipv4#127.0.0.1:1 failed: Connection refused); for up to 2m" in line
        waiting.terminate()
        stopped = time.monotonic()
        assert waiting.wait(timeout=30) == 130
        assert time.monotonic() - stopped < 20
