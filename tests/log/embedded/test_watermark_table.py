"""Older watermarks are thinned out, the newest stays; damage is noticed."""

import sqlite3
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from log.children import texts
from millrace.errors import LogDamaged
from millrace.log.embedded import watermark_table
from millrace.log.embedded.log import EmbeddedLog


@pytest.fixture
def embedded(tmp_path: Path) -> EmbeddedLog:
    log = EmbeddedLog(tmp_path / "log")
    log.ensure_raw("t")
    return log


def test_of_older_commits_each_nth_is_kept_for_a_while(embedded: EmbeddedLog) -> None:
    writer = embedded.writer("w")
    with (
        patch.object(watermark_table, "ALL_MARKERS", 10),
        patch.object(watermark_table, "EVERY", 4),
        patch.object(watermark_table, "OLDEST_MARKERS", 20),
    ):
        for marker in range(33):
            writer.commit(marker, {"t": texts("a")}, watermarks={"t": marker})
    kept = [record.watermark for record in embedded.writer_watermarks("t")["w"]]
    assert kept == [*range(32, 21, -1), 20, 16, 12]
    embedded.close()


def test_a_flipped_bit_is_noticed(embedded: EmbeddedLog, tmp_path: Path) -> None:
    embedded.writer("w").commit(0, {}, watermarks={"t": 1_000})
    with closing(sqlite3.connect(tmp_path / "log" / "results.db")) as db, db:
        [body] = db.execute("select body from watermark").fetchone()
        db.execute("update watermark set body = ?", (body.replace(b"1000", b"9000"),))
    with pytest.raises(LogDamaged, match="the watermarks of t"):
        list(embedded.writer_watermarks("t")["w"])
    embedded.close()
