"""A state table of which the newest version of each key counts.

A batch appends the keys that it changed, each with a version number (`_seq`), and reads only the keys that
something happens to: those of its rows, and those for which time has come (`due`). A key that is deleted gets
a tombstone, a row whose value is null, because older versions of it may still lie in other chunks. A
tombstone expires when those would.

Example, a key whose match must end before 60 s:

    batch  happens                stored rows of the key (due, until, value, _seq)
    1      a match begins         (60 s, 60 s, bytes, 1)
    2      the match is complete  (60 s, 60 s, bytes, 1), (never, 60 s, null, 2)
    3      watermark 60 s         none: nothing that lies here matters any more
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from millrace.durations import END_OF_STREAM
from millrace.engine.state import Chunk, Layout, SlotState, concat_frames, few_frames
from millrace.values.columns import STATE_VERSION

_NEVER = pl.lit(END_OF_STREAM, pl.Int64)


def newest_versions(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The newest version of each key."""
    return frame.sort(STATE_VERSION).unique(keys, keep="last", maintain_order=True)


@dataclass(frozen=True, eq=False)
class KeyedTable:
    """One table of one operator."""

    operator_id: str
    name: str
    keys: Sequence[str]
    empty: pl.DataFrame
    """No rows, in the columns that rows have."""
    value: str | None = None
    """The column that is null in tombstones; None: keys are never deleted."""
    due: str | None = None
    """The column that says when time alone concerns a key."""
    until: str | None = None
    """The column that says when nothing of a row matters any more; None: rows never expire."""
    has_lists: bool = False
    """Whether a version of a key is several rows."""

    def newest(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The newest version of each key."""
        if self.has_lists:
            return frame.filter(pl.col(STATE_VERSION) == pl.col(STATE_VERSION).max().over(self.keys))
        return newest_versions(frame, self.keys)

    def layout(self, since: int | None = None, where: pl.Expr | None = None) -> Layout:
        """How chunks are merged: to the newest versions, without what had expired by `since`,
        and only `where` that holds.
        """
        until = _NEVER if self.until is None else pl.col(self.until)
        due = until if self.due is None else pl.col(self.due)

        def merge(frame: pl.DataFrame) -> pl.DataFrame:
            newest = self.newest(frame if where is None else frame.filter(where))
            return newest if self.until is None or since is None else newest.filter(until > since)

        return Layout(due, until, merge)

    def read(self, state: SlotState, keys: pl.DataFrame) -> pl.DataFrame:
        """What is kept of some keys, each of which is in `keys` once."""
        return self.without_deleted(self.read_versions(state, keys), None)

    def read_versions(self, state: SlotState, keys: pl.DataFrame) -> pl.DataFrame:
        """The newest versions of some keys, also of those that were deleted."""
        return self._select([chunk.rows_near(keys) for chunk in self._chunks(state)], keys)

    def read_due(
        self, state: SlotState, keys: pl.DataFrame, since: int, until: int, where: pl.Expr | None = None
    ) -> pl.DataFrame:
        """What is kept of some keys, and of those that are due up to `until`;
        without what had expired by `since`.
        """
        return self.without_deleted(self.read_due_versions(state, keys, since, until, where), since)

    def read_due_versions(
        self, state: SlotState, keys: pl.DataFrame, since: int, until: int, where: pl.Expr | None = None
    ) -> pl.DataFrame:
        """As `read_due`, also of keys that were deleted."""
        assert self.due is not None
        chunks = [chunk for chunk in self._chunks(state) if chunk.max_end > since]
        is_due = pl.col(self.due) <= until if where is None else (pl.col(self.due) <= until) & where
        may_be_due = few_frames([chunk.frame for chunk in chunks if chunk.min_end <= until])
        due_keys = [frame.filter(is_due).select(keys.columns) for frame in may_be_due]
        all_keys = pl.concat([keys, *due_keys]).unique() if due_keys else keys
        frames = [chunk.rows_near(all_keys) for chunk in chunks]
        return self._select(frames if where is None else [frame.filter(where) for frame in frames], all_keys)

    def read_all(self, state: SlotState) -> pl.DataFrame:
        """What is kept of all keys."""
        return self.newest(self._concat([chunk.frame for chunk in self._chunks(state)]))

    def append(
        self,
        state: SlotState,
        changed: pl.DataFrame,
        *,
        since: int | None = None,
        where: pl.Expr | None = None,
    ) -> SlotState:
        """With new versions, and chunks merged where there are many; see `layout`."""
        return state.append(self.operator_id, self.name, changed, self.layout(since, where))

    def expire(self, state: SlotState, until: int) -> SlotState:
        """Without the chunks of which nothing matters any more at a time."""
        return state.expire(self.operator_id, self.name, until)

    def _chunks(self, state: SlotState) -> Sequence[Chunk]:
        return state.table(self.operator_id, self.name).chunks

    def _select(self, frames: Sequence[pl.DataFrame], keys: pl.DataFrame) -> pl.DataFrame:
        order: Literal["left", "none"] = "left" if self.has_lists else "none"
        found = self._concat(frames)
        if frames:
            found = found.join(keys, on=keys.columns, how="semi", nulls_equal=True, maintain_order=order)
        return self.newest(found)

    def without_deleted(self, newest: pl.DataFrame, since: int | None) -> pl.DataFrame:
        """Without keys that were deleted, and without what had expired by `since`."""
        if self.value is None:
            return newest
        is_kept = pl.col(self.value).is_not_null()
        if since is not None and self.until is not None:
            is_kept &= pl.col(self.until) > since
        return newest.filter(is_kept)

    def _concat(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return concat_frames([*frames, self.empty]) if self.has_lists else pl.concat([self.empty, *frames])
