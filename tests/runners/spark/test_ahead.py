"""What is read ahead is what would have been read, and whatever befalls the process that does so, nothing is
missing. No JVM is started.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millrace.engine.exchange import Body, merge_bodies
from millrace.log import Log
from millrace.runners.spark.source import ReadTask, read_packets
from runners.spark.test_source import READINGS, Clock, append, log, reader

__all__ = ["log"]
SCRIPT = Path(__file__).with_name("reading_ahead.py")


def second_batch(log: Log, folder: Path, mishap: str) -> dict[str, Any]:
    words = [sys.executable, str(SCRIPT), log.url, str(folder), mishap]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def summarize(body: Body) -> tuple[Any, ...]:
    """All that a body says, in an order of its own."""
    sources = sorted((s.topic, s.partition, s.has_rows, tuple(s.clocks.items())) for s in body.sources)
    rows = sorted(
        (block.target, block.kind, block.channel, *map(str, row))
        for block in body.blocks
        for row in block.frame.rows()
    )
    return body.now, body.ended_topics, sources, body.counts, rows


@pytest.mark.parametrize(
    ("mishap", "ahead"),
    [("none", True), ("broken", True), ("killed", False), ("stalled", False), ("stuck", False)],
)
def test_a_batch_read_ahead_is_the_batch(log: Log, tmp_path: Path, mishap: str, *, ahead: bool) -> None:
    append(log, 200)
    found = second_batch(log, tmp_path / "ahead", mishap)
    assert found["asked"] == 2
    assert found["ready"] == (2 if ahead else 0)
    first, second = found["offsets"]
    ranges = [
        (READINGS.name, int(p), first["topics"][READINGS.name][p], end)
        for p, end in second["topics"][READINGS.name].items()
    ]
    direct = read_packets(reader(log, Clock())._spec, ReadTask(second["clock"], ranges))
    assert summarize(merge_bodies(Body.decode(bytes.fromhex(body)) for body in found["bodies"])) == summarize(
        merge_bodies(Body.decode(body) for _, body in direct)
    )


def test_nobody_reads_ahead_unless_there_is_a_folder_for_it(log: Log) -> None:
    source = reader(log, Clock())
    append(log, 10)
    share = ReadTask(
        1,
        [(READINGS.name, 0, 0, log.end_offsets(READINGS.name)[0])],
        following=[ReadTask(1, [(READINGS.name, 0, 0, 1)])],
    )
    (batch,) = source.read(share)
    assert batch.num_rows == 4
