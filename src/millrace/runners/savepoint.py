"""A savepoint: the state of a stopped run in one file, from which another run can start, also with other slots or more jobs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from millrace.engine.state import SlotState
from millrace.errors import StateMismatch, StateUnwritable
from millrace.runners.checkpoint import Place, begun
from millrace.runners.feed import Offsets
from millrace.runners.folder import Identity, StateFolder


@dataclass(frozen=True)
class Savepoint:
    """Where a run stood."""

    identity: Identity
    offsets: Offsets
    states: Mapping[Place, SlotState]


def save(folder: StateFolder, target: Path) -> Savepoint:
    """Writes the state of a folder that is held; refuses a batch that was begun and not finished, which another run could not tell from one that was."""
    identity, source = folder.identity(), folder.path / "local.db"
    if identity is None or not source.exists():
        said = "holds state of the Spark runner, of which savepoints cannot be made yet" if folder.checkpoint.exists() else "holds no state"
        raise StateMismatch(f"{folder.path} {said}; name the folder (state.dir) and run (run.name) of a local run")
    if target.exists():
        raise StateUnwritable(f"savepoint {target} is there already; name another file, or remove it")
    try:
        with sqlite3.connect(source) as db:
            if begun(db):
                raise StateMismatch(
                    f"{folder.path}: a batch was begun and not finished, as the run was killed; run the same jobs with --until-caught-up first, then make the savepoint"
                )
            db.execute("vacuum into ?", (str(target),))
        with sqlite3.connect(target) as copy:
            copy.execute("insert or replace into facts values ('identity', ?)", (json.dumps(asdict(identity)),))
    except sqlite3.Error as error:
        raise StateUnwritable(f"savepoint {target}: {error}; name a file in a folder that can be written") from error
    return load(target)


def load(path: Path) -> Savepoint:
    """The savepoint in a file."""
    try:
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)
        facts = dict(db.execute("select name, value from facts"))
        said = json.loads(facts["identity"])
    except (sqlite3.Error, KeyError, ValueError) as error:
        raise StateMismatch(f"{path} is no savepoint ({error}); make one with millrace savepoint FILE") from error

    def chunk(stage: int, slot: int, id: int) -> bytes:
        return bytes(db.execute("select data from chunks where stage = ? and slot = ? and id = ?", (stage, slot, id)).fetchone()[0])

    states = {
        (stage, slot): SlotState.open(meta, partial(chunk, stage, slot))
        for stage, slot, meta in db.execute("select stage, slot, meta from metas")
    }
    offsets = Offsets.from_json(facts["committed"]) if facts.get("committed") else Offsets({}, 0)
    return Savepoint(Identity(**{**said, "jobs": tuple(said["jobs"])}), offsets, states)
