"""Files that are replaced as a whole: a reader sees the old content or the new one, whenever the writer dies.

The new content goes into a draft beside the file, which is then renamed over it; a rename is atomic. A
durable file also survives a power failure: the draft is on disk before it is renamed, and the folder, which
holds the name, is on disk when the call returns.

Example: a run writes `identity.json` and is killed.

    killed while the draft is written    `identity.json` is the old one; `.identity.json.draft` is overwritten
                                         by the next writer
    power fails after the rename         durable: the new one; else the name may lead to an empty file
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_file(path: Path, content: bytes, *, durable: bool) -> None:
    """Replaces a file by this content, or makes it. `durable` costs two waits for the disk."""
    with replace_file(path, durable=durable) as draft:
        draft.write_bytes(content)


@contextmanager
def replace_file(path: Path, *, durable: bool) -> Iterator[Path]:
    """Yields the draft for the body to write, then puts it in the file's place.
    Where the body raises, the file stays as it was.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        yield draft
        if durable:
            _sync(draft)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        _sync(path.parent)


def _sync(path: Path) -> None:
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
