"""A savepoint: the state of a stopped run in one file, from which another run can start, also with other slots or more jobs."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from millrace.engine.plan import Plan
from millrace.engine.recutting import recut
from millrace.engine.state import SlotState
from millrace.errors import StateMismatch, StateUnwritable
from millrace.runners.checkpoint import TABLES, Place, begun, store
from millrace.runners.evolution import Wishes, evolved
from millrace.runners.feed import Offsets
from millrace.runners.folder import Identity, StateFolder


@dataclass(frozen=True)
class Savepoint:
    """Where a run stood."""

    identity: Identity
    offsets: Offsets
    states: Mapping[Place, SlotState]


def save(folder: StateFolder, target: Path) -> Savepoint:
    """Writes the state of a local run whose folder is held; refuses a batch that was begun and not finished, which another run could not tell from one that was."""
    identity, source = folder.identity(), folder.path / "local.db"
    if identity is None or not source.exists():
        raise StateMismatch(f"{folder.path} holds no state; name the folder (state.dir) and run (run.name) of a run")
    check_target(target)
    with _making(target):
        with sqlite3.connect(source) as db:
            if begun(db):
                raise StateMismatch(unfinished(folder.path, "make the savepoint"))
            db.execute("vacuum into ?", (str(target),))
        with sqlite3.connect(target) as copy:
            copy.execute("insert or replace into facts values ('identity', ?)", (json.dumps(asdict(identity)),))
    return load(target)


def write(saved: Savepoint, target: Path) -> None:
    """Writes a state that is at hand: the file is there as a whole or not at all."""
    draft = target.with_name(f".{target.name}")
    with _making(target):
        draft.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(draft)) as db, db:
            db.execute("pragma journal_mode = off")
            db.execute("pragma synchronous = off")
            db.executescript(TABLES)
            facts = {"identity": json.dumps(asdict(saved.identity)), "committed": saved.offsets.to_json()}
            db.executemany("insert into facts values (?, ?)", facts.items())
            store(db, {place: state.changes_since(SlotState()) for place, state in saved.states.items()})
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(target)


def check_target(target: Path) -> None:
    """Refuses to write over a file."""
    if target.exists():
        raise StateUnwritable(f"savepoint {target} is there already; name another file, or remove it")


@contextlib.contextmanager
def _making(target: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StateUnwritable(f"savepoint {target}: {error}; name a file in a folder that can be written") from error


def unfinished(path: Path, then: str) -> str:
    """What to do about a batch that was begun and not finished."""
    return f"{path}: a batch was begun and not finished, as the run was killed; run the same jobs with --until-caught-up first, then {then}"


def restored(path: Path, plan: Plan, wishes: Wishes) -> Savepoint:
    """A savepoint as jobs of now can go on with it: under no id yet, in the stages and slots of the plan."""
    saved = load(path)
    after = evolved(saved.identity, plan, saved.states, wishes, str(path))
    states = recut(plan, saved.states) if after.states is None else after.states
    return Savepoint(replace(after.identity, base=0), saved.offsets, states)


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
