"""Flipped bits in what Spark keeps of a run: what is read here is compared with Hadoop's checksums,
and what Spark says is one line.
"""

import json
import struct
import zlib
from pathlib import Path

import pytest

from millrace.engine.progress import PartitionWatermark
from millrace.errors import StateUnreadable
from millrace.log.embedded.verify import VerificationCounts
from millrace.runners.batches import Offsets
from millrace.runners.spark.savepoint import read_committed_offsets
from millrace.runners.spark.supervisor.failures import explain_failure, is_retryable
from millrace.runners.spark.watermark_file import read_alignment, write_watermarks
from millrace.runners.state.folder import Identity, encode_checked
from millrace.runners.state.hadoop_checksums import is_intact
from millrace.runners.state.verify import verify_state

OFFSETS = Offsets({"input.a": {0: 191, 1: 257}}, 1_795_037_146_816)
MESSAGES = [
    "v1",
    json.dumps({"batchWatermarkMs": 0, "conf": {f"spark.some.setting.{n}": "x" * 40 for n in range(20)}}),
    OFFSETS.to_json(),
]


def write(path: Path, text: str) -> None:
    """As Hadoop's local file system does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    sums = [zlib.crc32(text.encode()[start : start + 512]) for start in range(0, len(text), 512)]
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + struct.pack(f">{1 + len(sums)}I", 512, *sums))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    made = tmp_path / "run" / "checkpoint"
    write(made / "offsets" / "3", "\n".join(MESSAGES))
    write(made / "commits" / "3", 'v1\n{"nextBatchWatermarkMs":0}')
    known = Identity("id", ("job",), "", 1, 1)
    (tmp_path / "run" / "identity.json").write_bytes(
        encode_checked({**vars(known), "operators": {}, "births": {}})
    )
    return made


def test_a_flipped_bit_in_the_offsets_of_a_checkpoint_is_refused(checkpoint: Path) -> None:
    assert read_committed_offsets(checkpoint) == OFFSETS
    for path in (checkpoint / "offsets" / "3", checkpoint / "offsets" / ".3.crc"):
        whole = path.read_bytes()
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            with pytest.raises(StateUnreadable, match=r"offsets/3 is damaged .*--restore FILE") as raised:
                read_committed_offsets(checkpoint)
            assert not is_retryable(raised.value)
        path.write_bytes(whole)


def test_a_checkpoint_without_checksums_is_read_and_its_offsets_must_be_offsets(checkpoint: Path) -> None:
    (checkpoint / "offsets" / ".3.crc").unlink()
    assert read_committed_offsets(checkpoint) == OFFSETS
    for text in ("v1\n{}\n{", "", "v1\n[]", "v1\n{}\n{}"):
        (checkpoint / "offsets" / "3").write_text(text)
        with pytest.raises(StateUnreadable, match="offsets/3 is damaged"):
            read_committed_offsets(checkpoint)


def test_verify_walks_the_checkpoints_of_spark(checkpoint: Path) -> None:
    folder = checkpoint.parents[1]
    assert list(verify_state(folder, VerificationCounts())) == []
    write(checkpoint / "state" / "0" / "0" / "1.zip", "x" * 2_000)
    (checkpoint / "state" / "0" / "0" / "1.zip").write_text("x" * 1_500 + "y" + "x" * 499)
    [found] = verify_state(folder, VerificationCounts())
    assert found.file.endswith("state/0/0/1.zip")
    assert is_intact(checkpoint / "commits" / "3")


@pytest.mark.parametrize(
    "message",
    [
        (
            "org.apache.hadoop.fs.ChecksumException: Checksum error: file:/state/checkpoint/offsets/3 at 0 "
            "exp: 1 got: 2"
        ),
        (
            "org.rocksdb.RocksDBException: Corruption: block checksum mismatch: stored = 1, computed = 2 in "
            "/state/000008.sst"
        ),
        "java.util.zip.ZipException: invalid entry CRC",
    ],
)
def test_what_spark_says_of_damaged_files_is_one_line_and_not_tried_again(
    message: str, tmp_path: Path
) -> None:
    text = (
        f"[STREAM_FAILED] Query terminated with exception: Job aborted\nCaused by: {message}\n\tat "
        "org.apache.spark.sql"
    )
    found = explain_failure(Exception(text), state=tmp_path)
    assert isinstance(found, StateUnreadable)
    assert not is_retryable(found)
    assert "\n" not in str(found)
    assert "Spark's checkpoint" in str(found)


def test_damage_to_how_far_partitions_have_come_only_unpaces_them(tmp_path: Path) -> None:
    path = tmp_path / "reaches.json"
    write_watermarks(
        path, {"a": [PartitionWatermark("input.a", 0, 5), PartitionWatermark("input.a", 1, None, True)]}
    )
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            read_alignment(path, 10)
