"""State of a slot: for each operator, tables of frames and a few plain values; all immutable.

A table is a stack of chunks. A batch adds a small chunk of what it touched; now and then chunks of one size
are merged into a larger one, so that a batch writes about what it touched and a reader opens few chunks.
Chunks are named by number and known by the digest of their bytes, so that a worker that has decoded one
before need not fetch it again.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import polars as pl

from millrace.engine import exchange
from millrace.engine.key_index import KeyIndex
from millrace.errors import StateUnreadable

MERGE_FACTOR = 8
"""How many chunks of a level are merged into one of the next."""

SMALL_ROWS = 10_000
"""Frames of up to so many rows are put together before they are searched."""

CACHE_BYTES = 256 << 20
"""How much decoded state a process keeps at hand."""

INDEX_BYTES = 64 << 20
"""How much of indexes of keys a process keeps at hand."""

MIN_INDEXED_ROWS = 10_000
"""How many rows a chunk has whose keys are indexed."""

MIN_ROWS_PER_KEY = 16
"""How many times more rows than keys there are where an index is quicker than to look at all rows."""

VERSION = 1
LoadChunk = Callable[[int], bytes]
K = TypeVar("K")
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """What can be made again, up to a number of bytes; the least recently used is forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._size = 0.0

    def get(self, key: K) -> V | None:
        """What was put there, if it is still there."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: K, value: V, size: float) -> None:
        """Keeps a value of so many bytes."""
        if key in self._entries:
            return
        self._entries[key] = value, size
        self._size += size
        while self._size > self._limit and len(self._entries) > 1:
            _, (_, evicted) = self._entries.popitem(last=False)
            self._size -= evicted

    def clear(self) -> None:
        """Forgets all."""
        self._entries.clear()
        self._size = 0.0


_frame_cache: SizedCache[str, pl.DataFrame] = SizedCache(CACHE_BYTES)
_index_cache: SizedCache[tuple[str, ...], KeyIndex] = SizedCache(INDEX_BYTES)


def clear_cache() -> None:
    """Drops what is at hand, so that it must be fetched again."""
    _frame_cache.clear()
    _index_cache.clear()


def add_checksum(body: bytes) -> bytes:
    """A text with its checksum in a line of its own behind it."""
    return body + b"\n#%08x" % zlib.crc32(body)


def remove_checksum(stored: bytes) -> bytes:
    """The text of `add_checksum`; `ValueError` where the checksum does not fit."""
    body, _, check = stored.rpartition(b"\n#")
    if check != b"%08x" % zlib.crc32(body):
        raise ValueError("its checksum does not fit")
    return body


def damage_error(location: str, part: str, reason: str) -> StateUnreadable:
    """State that is not what was stored: where, what is lost, and what to do."""
    return StateUnreadable(
        f"{location} is damaged at {part} ({reason}), so what the jobs remember cannot be read; restore the "
        "state folder and the log from one backup, or start a new state folder from a savepoint (--restore "
        "FILE) or by millrace backfill; `millrace verify` says what else is damaged"
    )


@dataclass(frozen=True, eq=False)
class Chunk:
    """A frame of a table, at hand or fetched when first asked for.
    `low` and `high` bound the window ends it matters to.
    """

    id: int
    level: int
    rows: int
    min_end: int
    max_end: int
    digest: str
    fetch: Callable[[], bytes]
    location: str = "stored state"
    """Which file or store holds it, for errors."""

    @property
    def frame(self) -> pl.DataFrame:
        """The rows."""
        frame = _frame_cache.get(self.digest)
        if frame is None:
            frame = self._decode(self.read_bytes())
            _frame_cache.put(self.digest, frame, frame.estimated_size())
        return frame

    def rows_near(self, keys: pl.DataFrame) -> pl.DataFrame:
        """The rows of some keys, and perhaps others: all, unless they are very many more than the keys."""
        frame = self.frame
        if self.rows < max(MIN_INDEXED_ROWS, MIN_ROWS_PER_KEY * keys.height) or not keys.width:
            return frame
        name = (self.digest, *keys.columns)
        index = _index_cache.get(name)
        if index is None:
            index = KeyIndex.of(frame, keys.columns)
            _index_cache.put(name, index, index.size)
        return frame[index.find(keys)]

    def read_bytes(self) -> bytes:
        """The bytes of the chunk; `StateUnreadable` where they are not those that were stored."""
        try:
            data = self.fetch()
        except Exception as error:
            raise damage_error(self.location, f"chunk {self.id}", f"it cannot be fetched: {error}") from error
        if blake2b(data, digest_size=16).hexdigest() != self.digest:
            raise damage_error(
                self.location, f"chunk {self.id}", "its bytes do not fit the digest that was stored with it"
            )
        return data

    def _decode(self, data: bytes) -> pl.DataFrame:
        try:
            return exchange.decode_frame(data)
        except Exception as error:
            raise damage_error(self.location, f"chunk {self.id}", str(error)) from error


@dataclass(frozen=True)
class StateTable:
    """A stack of chunks of one schema."""

    chunks: tuple[Chunk, ...] = ()

    def between(self, low: int, high: int) -> list[pl.DataFrame]:
        """The frames that may matter to window ends in `(low, high]`."""
        return [chunk.frame for chunk in self.chunks_between(low, high)]

    def chunks_between(self, low: int, high: int) -> list[Chunk]:
        """The chunks that may matter to window ends in `(low, high]`."""
        return [chunk for chunk in self.chunks if chunk.max_end > low and chunk.min_end <= high]

    @property
    def rows(self) -> int:
        """How many rows are stored, merged or not."""
        return sum(chunk.rows for chunk in self.chunks)


@dataclass(frozen=True)
class Layout:
    """How an operator keeps a table: which window ends a frame's rows matter to,
    and how rows of several frames become fewer.
    """

    min_end: pl.Expr
    max_end: pl.Expr
    merge: Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class SlotState:
    """The tables and values of all operators in one slot."""

    tables: Mapping[str, StateTable] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    """Per operator, plain JSON values."""
    next_id: int = 0

    @classmethod
    def open(cls, meta: bytes | None, load: LoadChunk, location: str = "stored state") -> SlotState:
        """The state that `Changes.meta` describes, its chunks fetched by `load` when needed.
        `where`: what errors say of its place.
        """
        if meta is None:
            return cls()
        try:
            description = json.loads(remove_checksum(meta))
        except ValueError as error:
            raise damage_error(location, "its description", str(error)) from error
        if description["version"] != VERSION:
            raise ValueError(
                f"state of version {description['version']}, but this is version {VERSION}; go on with the "
                "version that wrote it, or compute results anew (millrace backfill)"
            )
        tables = {
            name: StateTable(tuple(_stored_chunk(load, location, *chunk) for chunk in chunks))
            for name, chunks in description["tables"].items()
        }
        return cls(tables, description["values"], description["next"])

    def table(self, operator: str, name: str) -> StateTable:
        """An operator's table, empty if it has none yet."""
        return self.tables.get(f"{operator}:{name}", StateTable())

    def with_values(self, operator: str, values: Any) -> SlotState:
        """With other plain values for an operator."""
        return replace(self, values={**self.values, operator: values})

    def append(self, operator: str, name: str, frame: pl.DataFrame, layout: Layout) -> SlotState:
        """With a frame's rows added, and chunks merged where there are many of a level."""
        if frame.is_empty():
            return self
        state, chunk = self._chunk(frame, 0, layout)
        chunks = [*state.table(operator, name).chunks, chunk]
        level = 0
        while len(same_level := [c for c in chunks if c.level == level]) >= MERGE_FACTOR:
            merged = layout.merge(concat_frames([c.frame for c in same_level]))
            state, chunk = state._chunk(merged, level + 1, layout)
            chunks = [c for c in chunks if c.level != level] + ([chunk] if merged.height else [])
            level += 1
        return state._with_table(operator, name, StateTable(tuple(chunks)))

    def expire(self, operator: str, name: str, before: int) -> SlotState:
        """Without the chunks that matter only to window ends up to `before`."""
        table = self.table(operator, name)
        kept = tuple(chunk for chunk in table.chunks if chunk.max_end > before)
        return self if len(kept) == len(table.chunks) else self._with_table(operator, name, StateTable(kept))

    def rewrite(
        self, operator: str, name: str, layout: Layout, keep: Callable[[pl.DataFrame], pl.DataFrame]
    ) -> SlotState:
        """With a table written anew as one chunk, of what is still to be kept of all its rows."""
        chunks = self.table(operator, name).chunks
        if not chunks:
            return self
        remaining = keep(layout.merge(concat_frames([chunk.frame for chunk in chunks])))
        state, chunk = self._chunk(remaining, max(chunk.level for chunk in chunks), layout)
        return state._with_table(operator, name, StateTable((chunk,) if remaining.height else ()))

    def with_chunk_part(self, table: str, frame: pl.DataFrame, whole: Chunk) -> SlotState:
        """With some rows of a chunk from elsewhere, which matter to the same window ends as the whole."""
        if frame.is_empty():
            return self
        data = exchange.encode_frame(frame)
        digest = blake2b(data, digest_size=16).hexdigest()
        chunk = replace(whole, id=self.next_id, rows=frame.height, digest=digest, fetch=lambda: data)
        chunks = self.tables.get(table, StateTable()).chunks
        return replace(
            self, tables={**self.tables, table: StateTable((*chunks, chunk))}, next_id=self.next_id + 1
        )

    def only_operators(self, operators: set[str]) -> SlotState:
        """Without what belongs to operators that no longer exist."""
        tables = {name: table for name, table in self.tables.items() if name.rsplit(":", 1)[0] in operators}
        values = {name: value for name, value in self.values.items() if name in operators}
        return replace(self, tables=tables, values=values)

    def changes_since(self, old: SlotState) -> Changes:
        """What must be written so that `open` finds this state where `old` was."""
        new_chunks = {chunk.id: chunk for table in self.tables.values() for chunk in table.chunks}
        old_ids = {chunk.id for table in old.tables.values() for chunk in table.chunks}
        tables = {
            name: [[c.id, c.level, c.rows, c.min_end, c.max_end, c.digest] for c in table.chunks]
            for name, table in self.tables.items()
            if table.chunks
        }
        description = {"version": VERSION, "next": self.next_id, "tables": tables, "values": self.values}
        put = {id: chunk.fetch() for id, chunk in new_chunks.items() if id not in old_ids}
        return Changes(
            add_checksum(json.dumps(description, separators=(",", ":")).encode()),
            put,
            sorted(old_ids - new_chunks.keys()),
        )

    def _chunk(self, frame: pl.DataFrame, level: int, layout: Layout) -> tuple[SlotState, Chunk]:
        frame = frame.rechunk()
        data = exchange.encode_frame(frame)
        digest = blake2b(data, digest_size=16).hexdigest()
        _frame_cache.put(digest, frame, frame.estimated_size())
        low, high = (
            frame.select(layout.min_end.min().alias("low"), layout.max_end.max().alias("high")).row(0)
            if frame.height
            else (0, 0)
        )
        chunk = Chunk(self.next_id, level, frame.height, low, high, digest, lambda: data)
        return replace(self, next_id=self.next_id + 1), chunk

    def _with_table(self, operator: str, name: str, table: StateTable) -> SlotState:
        return replace(self, tables={**self.tables, f"{operator}:{name}": table})


def few_frames(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Frames of one table, the small ones among them as one: a query costs more than their rows do."""
    small = [frame for frame in frames if frame.height <= SMALL_ROWS]
    if len(small) <= 1:
        return [*frames]
    return [*(frame for frame in frames if frame.height > SMALL_ROWS), concat_frames(small)]


def concat_frames(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Frames of one table as one, in the columns of the last: an event type may have got a field since the
    first was written, null in its rows.
    """
    if len(frames) == 1:
        return frames[0]
    schema = dict(frames[-1].schema)
    for frame in frames:
        if frame.columns != [*schema]:
            schema |= {name: dtype for name, dtype in frame.schema.items() if name not in schema}
    try:
        return pl.concat(add_missing_columns(frame, schema) for frame in frames)
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise StateUnreadable(
            f"stored rows do not have the columns {', '.join(schema)} as they are now: {reason}"
        ) from error


def add_missing_columns(frame: pl.DataFrame, schema: Mapping[str, Any]) -> pl.DataFrame:
    """A frame with null in the columns that it lacks."""
    if frame.columns == [*schema]:
        return frame
    return frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    )


@dataclass(frozen=True)
class Changes:
    """What a batch wrote: the description of all, the new chunks, and those no longer needed."""

    meta: bytes
    put: dict[int, bytes]
    delete: list[int]


def _stored_chunk(
    load: LoadChunk, location: str, id: int, level: int, rows: int, low: int, high: int, digest: str
) -> Chunk:
    return Chunk(id, level, rows, low, high, digest, lambda: load(id), location)
