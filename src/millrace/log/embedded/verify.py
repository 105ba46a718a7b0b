"""Verifies an embedded log: chunks against their checksums and neighbours, and the files by SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import LogDamaged
from millrace.log.embedded import chunks as framing


@dataclass(frozen=True)
class Damage:
    """A place in a file whose bytes are not those that were written."""

    file: str
    place: str
    problem: str
    lost: str
    remedy: str


@dataclass
class VerificationCounts:
    """How much was checked."""

    files: int = 0
    chunks: int = 0
    unchecked: int = 0
    """Chunks of earlier versions, which have no checksum: their lengths were compared."""


def verify_log(folder: Path, counts: VerificationCounts) -> Iterator[Damage]:
    """Every damage in the files of an embedded log."""
    for name in ("inputs.db", "results.db"):
        if (folder / name).exists():
            counts.files += 1
            yield from _verify_file(folder / name, counts)


def open_readonly(path: Path) -> sqlite3.Connection:
    """A connection that cannot write."""
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)


def verify_pages(db: sqlite3.Connection, path: Path, remedy: str) -> Iterator[Damage]:
    """Damage that SQLite itself finds in a file."""
    for (problem,) in db.execute("pragma integrity_check(20)"):
        if problem != "ok":
            yield Damage(str(path), "structure", problem, "unknown", remedy)


def _verify_file(path: Path, counts: VerificationCounts) -> Iterator[Damage]:
    remedy = f"restore {path.parent} from a backup"
    try:
        with closing(open_readonly(path)) as db:
            yield from verify_pages(db, path, remedy)
            for partition_id, topic, number, begin, end in db.execute(
                'select p.id, t.name, p.number, p."begin", p."end" from partition p join topic t on t.id = '
                "p.topic order by t.name, p.number"
            ).fetchall():
                yield from _verify_partition(
                    db, path, f"{topic}[{number}]", (partition_id, begin, end), counts
                )
    except sqlite3.Error as error:
        yield Damage(str(path), "some page", str(error), "unknown", remedy)


def _verify_partition(
    db: sqlite3.Connection, path: Path, name: str, declared: tuple[int, int, int], counts: VerificationCounts
) -> Iterator[Damage]:
    partition_id, begin, end = declared
    remedy = f"restore {path.parent} from a backup"
    next_base = begin
    for base, count, body in db.execute(
        "select base, count, body from chunk where partition = ? order by base", (partition_id,)
    ):
        counts.chunks += 1
        if base != next_base:
            yield Damage(
                str(path),
                f"{name}, offset {next_base}",
                f"the next chunk begins at {base}",
                f"{abs(base - next_base)} records",
                remedy,
            )
        next_base = base + count
        place = f"{name}, offsets {base} to {next_base}"
        try:
            counts.unchecked += not framing.check_chunk(body)
            if framing.count_records(body) != count:
                raise LogDamaged(f"it holds {framing.count_records(body)} records, not {count}")  # noqa: TRY301 - reported as any other damage
        except LogDamaged as error:
            yield Damage(str(path), place, str(error), f"{count} records", remedy)
    if next_base != end:
        yield Damage(
            str(path),
            name,
            f"chunks end at {next_base}, the partition at {end}",
            f"{abs(end - next_base)} records",
            remedy,
        )
