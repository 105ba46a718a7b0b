"""The checksums that Hadoop's file system keeps beside each file of Spark's checkpoint: `.NAME.crc`, a CRC-32
for every so many bytes.

Spark compares them where the JVM reads; what is read here is compared here.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from millrace.engine.state import damage_error

_HEAD = struct.Struct(">4sI")


def is_intact(path: Path) -> bool:
    """Whether a file is what was written; also where nothing was kept beside it."""
    checksum_file = path.with_name(f".{path.name}.crc")
    if not checksum_file.exists():
        return True
    body, stored = path.read_bytes(), checksum_file.read_bytes()
    if len(stored) < _HEAD.size:
        return False
    magic, size = _HEAD.unpack_from(stored)
    if magic != b"crc\0" or size == 0:
        return False
    sums = [zlib.crc32(body[start : start + size]) for start in range(0, len(body), size)]
    return stored[_HEAD.size :] == struct.pack(f">{len(sums)}I", *sums)


def read_checked_text(path: Path) -> str:
    """The text of a file; `StateUnreadable` where it is not what was written."""
    if not is_intact(path):
        raise damage_error(str(path), "some place", "its checksum does not fit")
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        raise damage_error(str(path), "some place", str(error)) from error
