"""The checksums that Hadoop's file system keeps beside each file of Spark's checkpoint: `.NAME.crc`, a CRC-32 for every so many bytes.

Spark compares them where the JVM reads; what is read here is compared here.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from millrace.engine.state import damaged

_HEAD = struct.Struct(">4sI")


def fits(path: Path) -> bool:
    """Whether a file is what was written; also where nothing was kept beside it."""
    beside = path.with_name(f".{path.name}.crc")
    if not beside.exists():
        return True
    body, kept = path.read_bytes(), beside.read_bytes()
    if len(kept) < _HEAD.size:
        return False
    magic, size = _HEAD.unpack_from(kept)
    if magic != b"crc\0" or size == 0:
        return False
    sums = [zlib.crc32(body[start : start + size]) for start in range(0, len(body), size)]
    return kept[_HEAD.size :] == struct.pack(f">{len(sums)}I", *sums)


def checked_text(path: Path) -> str:
    """The text of a file; `StateUnreadable` where it is not what was written."""
    if not fits(path):
        raise damaged(str(path), "some place", "its checksum does not fit")
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        raise damaged(str(path), "some place", str(error)) from error
