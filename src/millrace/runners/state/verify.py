"""Walks state folders and savepoints and compares what is stored with its checksums."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from millrace.engine.state import SlotState
from millrace.errors import MillraceError, StateMismatch
from millrace.log.embedded.verify import Damage, VerificationCounts, open_readonly, verify_pages
from millrace.runners.state.checkpoint import check_stage_slots, read_facts, read_states
from millrace.runners.state.folder import StateFolder
from millrace.runners.state.hadoop_checksums import is_intact
from millrace.runners.state.quarantine import Quarantine
from millrace.runners.state.savepoint import load_savepoint
from millrace.values.local_paths import require_local

_RESTORE = (
    "restore the state folder and the log from one backup, or start a new state folder from a savepoint "
    "(--restore FILE)"
)


def verify_state(folder: Path, counts: VerificationCounts) -> Iterator[Damage]:
    """All that is damaged in the state folders below a folder (`state.dir`)."""
    for identity in sorted(folder.glob("*/identity.json")):
        path = identity.parent
        counts.files += 1
        try:
            StateFolder(path, -1).read_identity()
        except StateMismatch as error:  # of another format, in which nothing else can be judged either
            yield Damage(
                str(identity),
                "all of it",
                str(error),
                "nothing, for the version that wrote it",
                "none needed",
            )
            continue
        except MillraceError as error:
            yield Damage(str(identity), "all of it", str(error), "whose state this is", _RESTORE)
        yield from _verify_quarantine(path, counts)
        if (path / "local.db").exists():
            yield from _verify_database(path / "local.db", counts)
        yield from _verify_checkpoints(path, counts)
        for seed in sorted(path.glob("seed-*.savepoint")):
            yield from verify_savepoint(seed, counts)


def _verify_quarantine(path: Path, counts: VerificationCounts) -> Iterator[Damage]:
    file = path / "quarantine.json"
    if not file.exists():
        return
    counts.files += 1
    try:
        Quarantine(path)
    except MillraceError as error:
        yield Damage(str(file), "all of it", str(error), "which jobs are under quarantine", _RESTORE)


def _verify_checkpoints(path: Path, counts: VerificationCounts) -> Iterator[Damage]:
    """Damaged files of Spark's checkpoints, by the checksums beside them."""
    for file in sorted(path.glob("checkpoint*/**/*")):
        if file.is_file() and file.suffix != ".crc":
            counts.files += 1
            if not is_intact(file):
                yield Damage(
                    str(file), "some place", "its checksum does not fit", "what the jobs remember", _RESTORE
                )


def verify_savepoint(path: Path, counts: VerificationCounts) -> Iterator[Damage]:
    """All that is damaged in a savepoint."""
    require_local(path, "the savepoint")
    remedy = "use another savepoint, or make a new one with millrace savepoint"
    counts.files += 1
    try:
        savepoint = load_savepoint(path)
        for state in savepoint.states.values():
            yield from _verify_chunks(path, state, counts, remedy)
    except MillraceError as error:
        yield Damage(str(path), "all of it", str(error), "the savepoint", remedy)


def _verify_database(path: Path, counts: VerificationCounts) -> Iterator[Damage]:
    counts.files += 1
    try:
        with closing(open_readonly(path)) as db:
            yield from verify_pages(db, path, _RESTORE)
            check_stage_slots(db, read_facts(db, path), path)
            for state in read_states(db, path).values():
                yield from _verify_chunks(path, state, counts, _RESTORE)
    except (sqlite3.Error, MillraceError) as error:
        yield Damage(str(path), "all of it", str(error), "what the jobs remember", _RESTORE)


def _verify_chunks(path: Path, state: SlotState, counts: VerificationCounts, remedy: str) -> Iterator[Damage]:
    for name, table in state.tables.items():
        for chunk in table.chunks:
            counts.chunks += 1
            try:
                chunk.read_bytes()
            except MillraceError as error:
                yield Damage(
                    str(path),
                    f"{chunk.location} chunk {chunk.id}",
                    str(error),
                    f"{chunk.rows} rows of {name}",
                    remedy,
                )
