"""A savepoint: the state of a stopped run in one file, from which another run can start,
also with other slots or more jobs.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from millrace.engine.plan import Plan
from millrace.engine.rescale import redistribute
from millrace.engine.state import SlotState, damage_error
from millrace.errors import StateMismatch, StateUnwritable
from millrace.runners.batches import Offsets
from millrace.runners.state.checkpoint import (
    TABLES,
    StageSlot,
    add_checksum,
    has_unfinished_batch,
    is_damage,
    make_facts,
    read_facts,
    read_states,
    store_changes,
    stored_format,
)
from millrace.runners.state.evolution import StateChanges, evolve
from millrace.runners.state.folder import STATE_FORMAT, Identity, StateFolder, describe_format
from millrace.values.atomic_files import replace_file
from millrace.values.local_paths import require_local


@dataclass(frozen=True)
class Savepoint:
    """The state of a run after a batch, and the offsets at which that ended."""

    identity: Identity
    offsets: Offsets
    states: Mapping[StageSlot, SlotState]


def save(folder: StateFolder, target: Path) -> Savepoint:
    """Writes the state of a local run.
    Refuses an unfinished batch, which another run could not tell from a complete one.
    """
    identity, source = folder.read_identity(), folder.path / "local.db"
    if identity is None or not source.exists():
        raise StateMismatch(
            f"{folder.path} holds no state; name the folder (state.dir) and run (run.name) of a run"
        )
    check_target(target)
    with _explain_write_errors(target), replace_file(target, durable=True) as draft:
        draft.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(source)) as db:
            if has_unfinished_batch(db):
                raise StateMismatch(describe_unfinished(folder.path, "make the savepoint"))
            db.execute("vacuum into ?", (str(draft),))
        with contextlib.closing(sqlite3.connect(draft)) as copy, copy:
            facts = {
                **dict(copy.execute("select name, value from facts")),
                "identity": json.dumps(asdict(identity)),
            }
            facts = _add_full_checksum(copy, make_facts(copy, facts))
            copy.executemany("insert or replace into facts values (?, ?)", facts.items())
    return load_savepoint(target)


def write_savepoint(savepoint: Savepoint, target: Path) -> None:
    """Writes a state that is at hand. Where it fails, no file is left."""
    with _explain_write_errors(target), replace_file(target, durable=True) as draft:
        draft.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(draft)) as db, db:
            db.execute("pragma journal_mode = off")
            db.execute("pragma synchronous = off")
            db.executescript(TABLES)
            facts = {
                "identity": json.dumps(asdict(savepoint.identity)),
                "committed": savepoint.offsets.to_json(),
            }
            store_changes(
                db,
                {
                    stage_slot: state.changes_since(SlotState())
                    for stage_slot, state in savepoint.states.items()
                },
            )
            facts = _add_full_checksum(db, make_facts(db, facts))
            db.executemany("insert into facts values (?, ?)", facts.items())


def check_target(target: Path) -> None:
    """Refuses to write over a file."""
    require_local(target, "the savepoint")
    if target.exists():
        raise StateUnwritable(f"savepoint {target} is there already; name another file, or remove it")


@contextlib.contextmanager
def _explain_write_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StateUnwritable(
            f"savepoint {target}: {error}; name a file in a folder that can be written"
        ) from error


def describe_unfinished(path: Path, next_step: str) -> str:
    """The message about a batch that was begun and not finished."""
    return (
        f"{path}: a batch was begun and not finished, as the run was killed; run the same jobs with "
        f"--until-caught-up first, then {next_step}"
    )


def adapt_savepoint(path: Path, plan: Plan, state_changes: StateChanges) -> Savepoint:
    """A savepoint adapted to the present jobs, in the stages and slots of the plan."""
    savepoint = load_savepoint(path)
    after = evolve(savepoint.identity, plan, savepoint.states, state_changes, str(path))
    states = redistribute(plan, savepoint.states) if after.states is None else after.states
    return Savepoint(replace(after.identity, base=0), savepoint.offsets, states)


def _add_full_checksum(db: sqlite3.Connection, facts: Mapping[str, str]) -> dict[str, str]:
    """Facts with a checksum over all that the file holds, as its tables have it:
    an index may differ from its table.
    """
    check = 0
    rest = {name: value for name, value in facts.items() if name not in ("whole", "check")}
    for row in sorted(rest.items()):
        check = zlib.crc32(json.dumps(row).encode(), check)
    for stage, slot, meta in db.execute(
        "select stage, slot, meta from metas not indexed order by stage, slot"
    ):
        check = zlib.crc32(meta, zlib.crc32(f"{stage} {slot}".encode(), check))
    for stage, slot, id, data in db.execute(
        "select stage, slot, id, data from chunks not indexed order by stage, slot, id"
    ):
        check = zlib.crc32(data, zlib.crc32(f"{stage} {slot} {id}".encode(), check))
    return add_checksum({**rest, "whole": f"{check:08x}"})


def _begins_like_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(6) == b"SQLite"


def load_savepoint(path: Path) -> Savepoint:
    """The savepoint in a file."""
    require_local(path, "the savepoint")
    try:
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
        facts = read_facts(db, path)
        identity_fields = json.loads(facts["identity"])
        if (found := stored_format(facts)) != STATE_FORMAT:
            raise StateMismatch(
                f"savepoint {path} {describe_format(found)}, so this version cannot read it; restore it "
                "with that version, or make one with this version: millrace savepoint FILE"
            )
        if _add_full_checksum(db, facts) != facts:
            raise damage_error(str(path), "some place", "the checksum over all of it does not fit")
        states = read_states(db, path)
    except (sqlite3.Error, KeyError, ValueError) as error:
        if isinstance(error, sqlite3.Error) and is_damage(error) and _begins_like_sqlite(path):
            raise damage_error(str(path), "some page", str(error)) from error
        raise StateMismatch(
            f"{path} is not a savepoint ({error}); make one with millrace savepoint FILE"
        ) from error
    offsets = Offsets.from_json(facts["committed"]) if facts.get("committed") else Offsets({}, 0)
    return Savepoint(Identity(**{**identity_fields, "jobs": tuple(identity_fields["jobs"])}), offsets, states)
