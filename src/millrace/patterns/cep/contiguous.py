"""Regular patterns on columns. What is kept of a key is its newest rows, from the first with which a match may still come of.

Nothing is passed over in such a pattern, so its partial matches are stretches of rows, and where they are known, rows say everything. No
row is looked at in Python but those of matches, and of timeouts where somebody asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from millrace.patterns.cep.matcher import END, Matcher
from millrace.patterns.cep.partial_matches import Course, Found, Lane
from millrace.patterns.cep.regular import Flags, Numbers, Regular, Stretches, is_regular

FIRST, DUE, UNTIL = "_first", "_due", "_until"
"""Of kept rows: whether a match may begin with it; when time alone changes something for its key, and when all of it is over."""

LEAST = -(2**62)


@dataclass(frozen=True)
class Read:
    """What came of some rows: rows of matches and timeouts as those of a matcher, and the rows that are kept."""

    matches: pl.DataFrame
    timeouts: pl.DataFrame
    kept: pl.DataFrame


@dataclass(frozen=True, eq=False)
class Contiguous:
    """A regular pattern, ready for rows. `timeouts`: whether anybody asks for them."""

    matcher: Matcher
    timeouts: bool = True

    @staticmethod
    def suits(matcher: Matcher) -> bool:
        """Whether a pattern is found this way: it is regular, and goes on after a match where that needs no step to be known."""
        return is_regular(matcher.rules.automaton) and matcher.pattern.skip.kind in (
            "none",
            "to_next",
            "past_last",
        )

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns of kept rows."""
        return pl.Schema({**self.matcher.schema, FIRST: pl.Boolean(), DUE: pl.Int64(), UNTIL: pl.Int64()})

    @cached_property
    def _regular(self) -> Regular:
        return Regular(self.matcher.rules.automaton)

    def step(self, kept: pl.DataFrame, fresh: pl.DataFrame, watermark: int) -> Read:
        """Takes rows in order, all before the watermark, behind those kept of their keys, and lets time pass up to it."""
        columns, mask = list(self.matcher.schema), self.matcher.tests.mask().alias("_mask")
        old = kept.select(*columns, FIRST, pl.lit(value=False).alias("_new"))
        new = fresh.select(*columns, pl.lit(value=True).alias(FIRST), pl.lit(value=True).alias("_new"))
        rows = self._by_key(pl.concat([old, new]).with_columns(mask))
        masks, times, keys = (
            rows[name].cast(pl.Int64).to_numpy() for name in ("_mask", self.matcher.time, "_key")
        )
        ends = np.searchsorted(keys, keys, side="right")
        begins = rows.select(pl.col(FIRST) & pl.col("_mask").is_in(self._beginnings)).to_series().to_numpy()
        span = self.matcher.pattern.span or END
        found = self._regular.follow(masks, times, ends, np.flatnonzero(begins), span, once=self._once)
        over = found.open & (times[found.starts] + span <= watermark)
        waits, overdue = found.open & ~over & (watermark < END), found.overdue | over
        is_new = rows["_new"].to_numpy()
        if self._once:
            told, holds = self._in_turn(found, keys, waits, overdue)
        else:
            told = ((found.latest >= 0) & is_new[found.latest]) | (overdue & self.timeouts)
            holds = waits
        after = self._found(rows, found, told, overdue, is_new, span)
        return Read(
            self.matcher.rows(after.matches),
            self.matcher.rows(after.timeouts),
            self._kept(rows, keys, ends, found, waits, holds),
        )

    @cached_property
    def _once(self) -> bool:
        """Whether the first match of a beginning is its only one."""
        return self.matcher.pattern.skip.kind != "none"

    @cached_property
    def _beginnings(self) -> list[int]:
        """The masks with which a match may begin."""
        return [mask for mask in range(1 << len(self.matcher.tests.bits)) if self.matcher.may_start(mask)]

    def _by_key(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of each key together, in order; `_key` numbers keys."""
        keys = list(self.matcher.keys)
        if not keys:
            return rows.with_columns(pl.lit(0, pl.UInt32).alias("_key"))
        numbers = rows.select(keys).unique().with_row_index("_key")
        return rows.join(numbers, on=keys, how="left", nulls_equal=True, maintain_order="left").sort(
            "_key", maintain_order=True
        )

    def _in_turn(self, found: Stretches, keys: Numbers, waits: Flags, overdue: Flags) -> tuple[Flags, Flags]:
        """Which beginnings are told of and which are held: one that began earlier goes first, so later ones wait for it."""
        told, holds = np.zeros(len(waits), dtype=np.bool_), waits.copy()
        asks = overdue if self.timeouts else np.zeros_like(overdue)
        past = self.matcher.pattern.skip.kind == "past_last"
        key = keys[found.starts]
        busy = np.isin(key, key[(found.latest >= 0) | asks])
        matters = np.flatnonzero(busy & ((found.latest >= 0) | waits | asks))
        current, least, blocked = -1, 0, False
        for place in matters.tolist():
            if key[place] != current:
                current, least, blocked = key[place], 0, False
            if found.starts[place] < least:
                holds[place] = False
                continue
            blocked = blocked or bool(waits[place])
            holds[place] = blocked
            if not blocked:
                told[place] = True
                if found.latest[place] >= 0:
                    least = (found.latest[place] if past else found.starts[place]) + 1
        return told, holds

    def _found(
        self, rows: pl.DataFrame, found: Stretches, told: Flags, overdue: Flags, is_new: Flags, span: int
    ) -> Found:
        """The matches and timeouts of some beginnings: only their rows are gone through one by one."""
        after, rules = Found([], []), self.matcher.rules
        chosen = np.flatnonzero(told)
        if not len(chosen):
            return after
        starts, until = found.starts[chosen], found.until[chosen]
        lengths = until - starts
        bases = np.cumsum(lengths) - lengths
        places = np.arange(lengths.sum()) - np.repeat(bases, lengths) + np.repeat(starts, lengths)
        part = rows[places]
        lists = (
            part["_mask"].to_list(),
            part[self.matcher.time].to_list(),
            part.select(list(self.matcher.schema)).rows(),
        )
        fresh, begins = is_new[places].tolist(), np.isin(np.arange(len(places)), bases).tolist()
        nothing: list[tuple[()]] = [()] * len(places)
        for base, length, late in zip(
            bases.tolist(), lengths.tolist(), overdue[chosen].tolist(), strict=True
        ):
            end = base + length
            mine = Found([], [])
            time = lists[1][base] + span if late else LEAST
            rules.follow(Course(), Lane(*lists, nothing, begins, base, end), time, mine, ended=False)
            own = [match for match in mine.matches if match.start.seq == 0]
            after.matches += (
                own if self._once else [match for match in own if fresh[base + match.node.event.seq]]
            )
            after.timeouts += [match for match in mine.timeouts if match.start.seq == 0]
        return after

    def _kept(
        self, rows: pl.DataFrame, keys: Numbers, ends: Numbers, found: Stretches, waits: Flags, holds: Flags
    ) -> pl.DataFrame:
        """From the first beginning that is held, the rows of each key."""
        starts = found.starts[holds]
        if not len(starts):
            return self.schema.to_frame()
        of_key, first = np.unique(keys[starts], return_index=True)
        froms = starts[first]
        lengths = ends[froms] - froms
        places = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths - froms, lengths)
        begins = np.zeros(len(keys), dtype=np.bool_)
        begins[starts] = True
        span = self.matcher.pattern.span
        times = rows[self.matcher.time].to_numpy()
        held_back = np.isin(of_key, keys[found.starts[holds & ~waits]]) | self.timeouts
        due = (
            np.where(held_back, times[froms] + (span or 0), END)
            if span is not None
            else np.full(len(of_key), END)
        )
        last = np.append(first[1:], len(starts)) - 1
        until = times[starts[last]] + span if span is not None else np.full(len(of_key), END)
        kept: pl.DataFrame = rows[places].with_columns(
            pl.Series(FIRST, begins[places]),
            pl.Series(DUE, np.repeat(due, lengths)),
            pl.Series(UNTIL, np.repeat(until, lengths)),
        )
        return kept.select(list(self.schema))
