"""The checkpoint of the local runner, a SQLite file: the planned batch,
the last complete one, and the state after it.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millrace.engine.plan import Plan
from millrace.engine.state import Changes, SlotState, damage_error
from millrace.errors import StateMismatch, StateUnwritable
from millrace.runners.batches import Offsets
from millrace.runners.state.evolution import StateChanges, evolve
from millrace.runners.state.folder import STATE_FORMAT, Identity, StateFolder, check_folder_format

TABLES = """
create table if not exists facts (name text primary key, value text not null);
create table if not exists metas (stage integer, slot integer, meta blob not null, primary key (stage, slot));
create table if not exists chunks (
    stage integer, slot integer, id integer, data blob not null, primary key (stage, slot, id));
"""
StageSlot = tuple[int, int]
"""A stage and a slot."""
SlotStates = dict[StageSlot, SlotState]


class Checkpoint:
    """Use as a context manager. Only one process can hold the folder."""

    def __init__(self, folder: StateFolder, plan: Plan, state_changes: StateChanges | None = None) -> None:
        """Finds out where the last run in this folder stopped, and whose it was; jobs may have joined, left
        or changed since, as far as wished.
        """
        if folder.is_spark:
            raise StateMismatch(
                f"{folder.path} holds state of the Spark runner; go on with --on spark, or take it to this "
                "runner: millrace savepoint FILE, then run with another state.dir and --restore FILE"
            )
        self._path, self._folder = folder.path, folder
        known = folder.read_identity()
        if known is None or not known.operators:
            names = tuple(job.name for job in plan.jobs)
            bound = folder.bind(jobs=names, fingerprint=plan.fingerprint, slots=plan.slots, partitions=1)
            known = replace(bound, operators=plan.fingerprints)
        with self._explain_write_errors():
            self._db = self._open_database(folder.path / "local.db")
            self._facts: dict[str, str] = read_facts(self._db, folder.path / "local.db")
            if self._facts:
                check_folder_format(folder.path, stored_format(self._facts))
        self.identity = self._evolve(known, plan, state_changes or StateChanges())

    @property
    def id(self) -> str:
        """The id of the state, which names the marker in the log."""
        return self.identity.id

    def _evolve(self, known: Identity, plan: Plan, state_changes: StateChanges) -> Identity:
        after = evolve(known, plan, self.restore({}), state_changes, str(self._path))
        if after.states is not None:
            if self.planned_offsets is not None:
                raise StateMismatch(
                    f"{self._path}: a batch was begun by {', '.join(known.jobs)} and not finished, as the "
                    "run was killed; run them as they were with --until-caught-up first, then change them"
                )
            self.replace_states(after.states)
        self._folder.rebind(after.identity)
        return after.identity

    def replace_states(self, states: Mapping[StageSlot, SlotState], offsets: Offsets | None = None) -> None:
        """Puts other states in the place of those that are stored, and goes on from these offsets."""
        changes = {stage_slot: state.changes_since(SlotState()) for stage_slot, state in states.items()}
        with self._explain_write_errors(), self._db:
            self._db.execute("delete from metas")
            self._db.execute("delete from chunks")
            store_changes(self._db, changes)
            self._put_facts({} if offsets is None else {"committed": offsets.to_json()})

    def __enter__(self) -> Self:
        """Already open."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the file."""
        self._db.close()

    @property
    def batch(self) -> int:
        """The number of the batch that is begun or next."""
        return int(self._facts.get("batch", "-1")) + 1

    @property
    def committed_offsets(self) -> Offsets | None:
        """The end of the last complete batch."""
        return Offsets.from_json(self._facts["committed"]) if "committed" in self._facts else None

    @property
    def planned_offsets(self) -> Offsets | None:
        """The end of a batch that was begun and not finished; it must be repeated over the same range."""
        return Offsets.from_json(self._facts["planned"]) if self._facts.get("planned") else None

    def plan_batch(self, end: Offsets) -> None:
        """Writes down a batch's range and clock before it runs."""
        self._write({"planned": end.to_json()}, {})

    def withdraw_batch(self) -> None:
        """Forgets a batch that was begun and of which nothing was committed."""
        self._write({"planned": ""}, {})

    def commit_batch(
        self, before: Mapping[StageSlot, SlotState], after: Mapping[StageSlot, SlotState]
    ) -> None:
        """Stores the state after a batch, whose results are in the log."""
        changes = {key: after[key].changes_since(before[key]) for key in after}
        facts = {"committed": self._facts["planned"], "planned": "", "batch": str(self.batch)}
        self._write(facts, changes)

    def restore(self, states: SlotStates) -> SlotStates:
        """The states after the last finished batch."""
        restored = dict(states)
        with self._explain_write_errors():
            check_stage_slots(self._db, self._facts, self._path / "local.db")
            restored.update(read_states(self._db, self._path / "local.db"))
        return restored

    def _write(self, facts: dict[str, str], changes: Mapping[StageSlot, Changes]) -> None:
        with self._explain_write_errors(), self._db:
            store_changes(self._db, changes)
            self._put_facts(facts)

    def _put_facts(self, facts: dict[str, str]) -> None:
        """Stores facts, and which stages and slots have state, in the transaction that is open."""
        after = make_facts(self._db, {**self._facts, **facts})
        self._db.executemany("insert or replace into facts values (?, ?)", after.items())
        self._facts = after

    @contextmanager
    def _explain_write_errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:
            raise damage_error(str(self._path / "local.db"), "some page", str(error)) from error
        except sqlite3.Error as error:
            if is_damage(error):
                raise damage_error(str(self._path / "local.db"), "some page", str(error)) from error
            raise StateUnwritable(
                f"state folder {self._path}: {error}; make space or allow writing, or move the folder to "
                "where there is room (and set state.dir). Nothing is lost: the run goes on from its last "
                "complete batch"
            ) from error

    @staticmethod
    def _open_database(path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=5)
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = full")
        db.executescript(TABLES)
        return db


def store_changes(db: sqlite3.Connection, changes: Mapping[StageSlot, Changes]) -> None:
    """Stores the changes of each stage and slot."""
    for stage_slot, change in changes.items():
        db.execute("insert or replace into metas values (?, ?, ?)", (*stage_slot, change.meta))
        db.executemany(
            "insert or replace into chunks values (?, ?, ?, ?)",
            [(*stage_slot, chunk_id, data) for chunk_id, data in change.put.items()],
        )
        db.executemany(
            "delete from chunks where stage = ? and slot = ? and id = ?",
            [(*stage_slot, chunk_id) for chunk_id in change.delete],
        )


def read_states(db: sqlite3.Connection, path: Path) -> SlotStates:
    """The states in a file; their chunks are fetched, and checked, when needed."""

    def fetch(stage: int, slot: int, chunk_id: int) -> bytes:
        row: Any = db.execute(
            "select data from chunks where stage = ? and slot = ? and id = ?", (stage, slot, chunk_id)
        ).fetchone()
        if row is None:
            raise LookupError("it is not there")
        return bytes(row[0])

    states: SlotStates = {}
    for stage, slot, meta in db.execute("select stage, slot, meta from metas"):
        location = f"{path}, stage {stage}, slot {slot},"
        if not isinstance(meta, bytes):
            raise damage_error(location, "its description", f"it is {meta!r}")
        states[stage, slot] = SlotState.open(meta, partial(fetch, stage, slot), location)
    return states


def make_facts(db: sqlite3.Connection, facts: Mapping[str, str]) -> dict[str, str]:
    """Facts with those that every file has: its format, which stages and slots have state, and a checksum."""
    return add_checksum({**facts, "format": str(STATE_FORMAT), "places": _list_stage_slots(db)})


def stored_format(facts: Mapping[str, str]) -> object:
    """The number of the format in which a file was written; None where it carries none."""
    number = facts.get("format")
    return int(number) if number is not None and number.isdecimal() else number


def add_checksum(facts: Mapping[str, str]) -> dict[str, str]:
    """Facts with a checksum over all of them, as one of them."""
    rest = {name: value for name, value in facts.items() if name != "check"}
    return {**rest, "check": f"{zlib.crc32(json.dumps(sorted(rest.items())).encode()):08x}"}


def read_facts(db: sqlite3.Connection, path: Path) -> dict[str, str]:
    """The facts in a file; `StateUnreadable` where their checksum does not fit."""
    try:
        rows = db.execute("select cast(name as blob), cast(value as blob) from facts")
        facts = {str(name, "utf-8"): str(value, "utf-8") for name, value in rows}
    except (UnicodeDecodeError, TypeError) as error:
        raise damage_error(str(path), "its facts", str(error)) from error
    if facts and add_checksum(facts) != facts:
        raise damage_error(str(path), "its facts", "their checksum does not fit")
    return facts


def check_stage_slots(db: sqlite3.Connection, facts: Mapping[str, str], path: Path) -> None:
    """Refuses a file in which a stage and slot that had state has none:
    the engine would begin there with empty state.
    """
    stored = facts.get("places", "[]")
    if (found := _list_stage_slots(db)) != stored:
        raise damage_error(
            str(path),
            "its descriptions",
            f"they are there for the stages and slots {found}, not for {stored}",
        )


def _list_stage_slots(db: sqlite3.Connection) -> str:
    return json.dumps(db.execute("select stage, slot from metas not indexed order by stage, slot").fetchall())


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite says that a file is not what it wrote."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    return (
        code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        or "no such" in str(error)
        or "decode to UTF-8" in str(error)
    )


def has_unfinished_batch(db: sqlite3.Connection) -> bool:
    """Whether a batch was begun and not finished."""
    row = db.execute("select value from facts where name = 'planned'").fetchone()
    return bool(row and row[0])
