"""Aggregation over rows, window by window: for sessions, for triggers of all kinds, and wherever slices do not suffice.

A cell is what is kept of one key in one window: partial aggregates, the trigger's state, the numbers of its panes, and the values that
hold downstream. A batch reads and writes the cells that it touches or that have waited for it; the newest version of a cell counts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from millrace.engine.arrivals import arrived, refused_rows, said_of
from millrace.engine.exchange import Block, Body
from millrace.engine.lateness import LEAST, Taken, Taking
from millrace.engine.operators.emit import Stepped, Windows
from millrace.engine.operators.triggers import Machines
from millrace.engine.operators.window_panes import Showing
from millrace.engine.progress import END, Progress
from millrace.engine.state import Chunk, Layout, SlotState
from millrace.triggers import EveryEventTime, walk
from millrace.windows import FOREVER, UNTIL_2262, Everything

MANY = 50_000
"""From how many cells on, old versions counted, a batch looks only at those that it may concern."""

_KEPT = 64
_live: OrderedDict[tuple[str, ...], pl.DataFrame] = OrderedDict()
"""The cells that hold now, by the chunks they were read from, so that a batch need not look through old versions again."""


@dataclass(frozen=True)
class Times:
    """Time in the windows' own domain before and after a batch, what rows are judged by, and the clock."""

    before: int
    judged: int
    after: int
    clock: int


@dataclass(frozen=True, eq=False)
class CellWindows(Windows):
    """The operator of a first aggregation whose windows or triggers are not computed from slices."""

    @cached_property
    def taking(self) -> Taking:
        """How rows are judged."""
        return Taking(self.operator.node.windowing, self.partials.keys)

    @cached_property
    def machines(self) -> Machines:
        """The trigger."""
        return Machines(self.operator.node.windowing.trigger)

    @cached_property
    def showing(self) -> Showing:
        """How panes are made."""
        return Showing(self.operator, self.partials)

    @cached_property
    def layout(self) -> Layout:
        """How cells are kept: the newest version of each."""
        end = pl.col("_end")
        return Layout(
            end, end, lambda frame: frame.sort("_seq").unique(self.group, keep="last", maintain_order=True)
        )

    def step(self, state: SlotState, body: Body, blocks: list[Block]) -> Stepped:
        """A batch: rows are judged, state is updated, the watermark moves, panes fire, expired state is dropped."""
        id = self.operator.id
        saved = state.values.get(id) or {"progress": None, "time": LEAST, "seq": 0}
        said = said_of(self.operator, body)
        before = Progress.from_json(saved["progress"]).wake(said, body.now)
        after = before.move(said, body.now, end=body.end)
        times = self._times(saved["time"], after.low, body.now)
        seq, low = saved["seq"] + 1, None if times.after == LEAST else times.after
        values = {"progress": after.to_json(), "time": times.after, "seq": seq}
        rows = arrived(self.operator, blocks, said, before)
        held = self._held(state, rows, times)
        if before.gone is not None:
            held = held.filter(pl.col("_end") > before.gone)
        if rows is None and held.is_empty():
            return Stepped(
                state.with_values(id, values), low, self.no_shown, self.no_panes, None, after.reaches(said)
            )
        touched, gone, late = self._take(rows, held, times, LEAST if before.gone is None else before.gone)
        shown, changes, written = self._fire(held, touched, gone, times, self.begun_before(before.since))
        if gone.height:
            changes = pl.concat([self.showing.taken_back(gone), changes])
            shown = pl.concat([self.showing.withdrawn(gone, times.judged), shown])
        state = self._write(state, held, written.with_columns(pl.lit(seq, pl.Int64).alias("_seq")), times)
        return Stepped(state.with_values(id, values), low, shown, changes, late, after.reaches(said))

    def _times(self, before: int, low: int | None, now: int) -> Times:
        if not self.operator.node.windowing.by_clock:
            return Times(before, before, LEAST if low is None else low, now)
        return Times(
            before, max(before, now), END if low is not None and low >= END else max(before, now), now
        )

    @cached_property
    def nothing(self) -> pl.DataFrame:
        """No cells, in the columns that they have."""
        number = pl.lit(0, pl.Int64)
        empty = self.operator.node.inputs[0].schema.to_frame()
        rows = empty.with_columns(
            number.alias(c) for c in ("_t", "_src", "_off", "_start", "_end", "_w", "_row")
        ).clear()
        new = self._new_cells(rows)
        text, no = pl.lit("", pl.String), pl.lit(value=False)
        return new.with_columns(
            text.alias("_trigger"),
            no.alias("_closed"),
            no.alias("_gone"),
            *[number.alias(c) for c in ("_due", "_tick", "_seq")],
        ).drop("_came")

    def _held(self, state: SlotState, rows: pl.DataFrame | None, times: Times) -> pl.DataFrame:
        """The cells that hold: all of them, or where they are many, those that this batch may concern."""
        table = state.table(self.operator.id, "cells")
        if not table.chunks:
            return self.nothing
        lives = pl.col("_end") + self.operator.horizon > times.before
        if table.rows > MANY:
            return self._concerned([chunk.frame for chunk in table.chunks], rows, times).filter(lives)
        name, chunks = _name(table.chunks), table.chunks
        if name not in _live:
            newest = self.layout.merge(self._all([chunk.frame for chunk in chunks]))
            _remember(name, newest.filter(~pl.col("_gone")))
        _live.move_to_end(name)
        return _live[name].filter(lives)

    def _all(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        """Cells of several chunks; those of older versions counted the panes of merged windows together."""
        cells = pl.concat([self.nothing, *frames], how="diagonal").with_columns(
            pl.col("_index0", "_settled0").fill_null(0)
        )
        if not isinstance(self.operator.node.windowing.places, Everything):
            return cells
        edges = zip(("_start", "_end"), UNTIL_2262, FOREVER, strict=True)
        return cells.with_columns(
            pl.when(pl.col(c) == old).then(new).otherwise(pl.col(c)).alias(c) for c, old, new in edges
        )

    def _concerned(self, frames: list[pl.DataFrame], rows: pl.DataFrame | None, times: Times) -> pl.DataFrame:
        """The newest cells of the keys that rows came for, and of those that waited for this time."""
        keys = self.partials.keys
        wanted = [frame.filter(self._due(times) & ~pl.col("_closed")).select(keys) for frame in frames]
        if rows is not None:
            wanted.append(rows.select(keys))
        these = pl.concat(wanted).unique()
        found = self._all([frame.join(these, on=keys, how="semi", nulls_equal=True) for frame in frames])
        return self.layout.merge(found).filter(~pl.col("_gone"))

    def _due(self, times: Times) -> pl.Expr:
        """Whether the time has come for which a cell waited."""
        due = (pl.col("_due") <= times.after) | (pl.col("_tick") <= times.clock)
        expires = pl.col("_end") + self.operator.horizon <= times.after
        return due.fill_null(value=False) | (
            expires if self.operator.node.windowing.closing != "none" else pl.lit(value=False)
        )

    def _write(self, state: SlotState, held: pl.DataFrame, written: pl.DataFrame, times: Times) -> SlotState:
        """With the new versions of cells, and without those whose time is over."""
        id, horizon = self.operator.id, self.operator.horizon
        lives, before = pl.col("_end") + horizon > times.after, _name(state.table(id, "cells").chunks)
        whole = state.table(id, "cells").rows <= MANY
        if written.height:
            written = written.filter(lives).select(self.nothing.columns)
            state = state.append(id, "cells", written, self.layout)
        state = state.expire(id, "cells", times.after - horizon)
        after = _name(state.table(id, "cells").chunks)
        if after == before:
            return state
        _live.pop(before, None)
        if whole:
            others = held.filter(lives)
            if others.height:
                others = others.join(written.select(self.group), on=self.group, how="anti", nulls_equal=True)
            _remember(after, pl.concat([others, written.filter(~pl.col("_gone")).select(others.columns)]))
        return state

    def _take(
        self, rows: pl.DataFrame | None, held: pl.DataFrame, times: Times, dropped: int
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame | None]:
        """The cells that rows came to, those that are no more because they grew into others, and the refused rows."""
        if rows is None:
            return self._none_touched, self.nothing, None
        at = pl.lit(times.clock, pl.Int64) if self.operator.node.windowing.by_clock else pl.col("_t")
        taken = self.taking.take(rows.with_columns(at.alias("_at")), held, dropped)
        late = None if taken.refused.is_empty() else refused_rows(rows, taken.refused)
        if taken.rows.is_empty():
            return self._none_touched, self.nothing, late
        touched, moved = self._touched(taken, held, times), taken.moved.select(self.group)
        if moved.is_empty():
            return touched, self.nothing, late
        gone = held.join(moved, on=self.group, how="semi", nulls_equal=True)
        return touched, gone.with_columns(pl.lit(value=True).alias("_gone")), late

    @cached_property
    def _none_touched(self) -> pl.DataFrame:
        return self.nothing.with_columns(pl.lit(0, pl.Int64).alias("_came"))

    def _new_cells(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What the rows of a batch come to, each window by itself."""
        time = pl.col("_t").filter(pl.col("_w").is_null() | (pl.col("_t") >= pl.col("_w")))
        count = pl.len().cast(pl.Int64)
        more = [
            count.alias("_came"),
            count.alias("_new"),
            time.min().alias("_lo"),
            time.max().alias("_hi"),
            pl.col("_t").min().alias("_first"),
        ]
        made = self.partials.of_rows(rows, per=("_start", "_end"), more=more)
        fresh = [pl.col(c).alias(f"~{c}") for c in self.partials.columns] if self.showing.delta else []
        number = pl.lit(0, pl.Int64)
        counts = [number.alias(c) for c in ("_index", "_settled", "_index0", "_settled0")]
        return made.with_columns(*fresh, *counts, self.showing.nothing_shown.alias("_shown"))

    def _touched(self, taken: Taken, held: pl.DataFrame, times: Times) -> pl.DataFrame:
        """Cells with the rows of this batch, and the trigger told of them."""
        new = self._new_cells(taken.rows)
        parts = held.join(taken.parts, on=self.group, how="inner", nulls_equal=True)
        if taken.moved.height:
            same = (pl.col("_start") == pl.col("_from")) & (pl.col("_end") == pl.col("_to"))
            parts = pl.concat([parts.filter(same), self.showing.grown(parts.filter(~same))])
        parts = parts.drop("_start", "_end").rename({"_from": "_start", "_to": "_end"})
        pieces = pl.concat(
            [
                new.with_columns(pl.lit(None, pl.String).alias("_trigger")),
                parts.with_columns(_came=pl.lit(0, pl.Int64)),
            ],
            how="diagonal",
        )
        state = pl.col("_trigger").drop_nulls().sort().alias("_states")
        sums = pl.col("_came", "_new", "_index", "_settled", "_index0", "_settled0").sum()
        more = [
            state,
            sums,
            pl.col("_lo", "_first").min(),
            pl.col("_hi").max(),
            pl.col("_shown").explode(empty_as_null=False),
        ]
        cells = self.partials.merged(pieces, per=("_start", "_end"), more=more)
        if self.showing.delta:
            cells = cells.join(self.showing.fresh_of(pieces), on=self.group, how="left", nulls_equal=True)
        start = pl.when(pl.col("_start") == FOREVER[0]).then(pl.col("_first")).otherwise(pl.col("_start"))
        known = times.judged != LEAST or not self._counts_event_time
        base = pl.lit(times.judged, pl.Int64) if known else start
        cells = cells.with_columns((pl.col("_end") <= times.judged).alias("_was_passed"), base.alias("_base"))
        told = self.machines.taken(cells, times.clock, merges=self.operator.node.windowing.window.merging)
        return told.with_columns(pl.lit(value=False).alias("_closed"), pl.lit(value=False).alias("_gone"))

    def _fire(
        self,
        held: pl.DataFrame,
        touched: pl.DataFrame,
        gone: pl.DataFrame,
        times: Times,
        young: list[pl.Expr],
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Panes to show, changes to pass on, cells to write."""
        expires = pl.col("_end") + self.operator.horizon <= times.after
        waited = held.filter(~pl.col("_closed") & self._due(times))
        if waited.height and (touched.height or gone.height):
            busy = pl.concat([touched.select(self.group), gone.select(self.group)])
            waited = waited.join(busy, on=self.group, how="anti", nulls_equal=True)
        if waited.is_empty() and touched.is_empty():
            return self.no_shown, self.no_panes, gone
        seen = touched.with_columns(pl.lit(value=True).alias("_asked"))
        if waited.height:
            due = (pl.col("_due") <= times.after) | (pl.col("_tick") <= times.clock)
            late = waited.with_columns(
                due.fill_null(value=False).alias("_asked"),
                _came=pl.lit(0, pl.Int64),
                _gone=pl.lit(value=False),
            )
            seen = pl.concat([seen, late], how="diagonal")
        seen = self.machines.looked(seen, times.after, times.clock)
        shown, changes, cells = self.showing.show(
            seen.with_columns(expires.alias("_expires")), (times.before, times.after), young
        )
        cells = self.machines.dated(cells, times.after, times.clock)
        written = cells.select(self._without_seq)
        if gone.height:
            written = pl.concat([written, gone.select(self._without_seq)], how="vertical_relaxed")
        return shown, changes, written

    @cached_property
    def _counts_event_time(self) -> bool:
        """Whether it matters to the trigger where a window begins, as long as there is no watermark."""
        return any(isinstance(one, EveryEventTime) for one in walk(self.operator.node.windowing.trigger))

    @cached_property
    def _without_seq(self) -> list[str]:
        return [c for c in self.nothing.columns if c != "_seq"]


def _name(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    return tuple(chunk.digest for chunk in chunks)


def _remember(name: tuple[str, ...], cells: pl.DataFrame) -> None:
    _live[name] = cells
    while len(_live) > _KEPT:
        _live.popitem(last=False)


def forget() -> None:
    """Drops what was remembered, so that it must be read again."""
    _live.clear()
