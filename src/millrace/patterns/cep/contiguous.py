"""Regular patterns on columns. What is kept of a key is its newest rows, from the first with which a match may still come of.

Nothing is passed over in such a pattern, so its partial matches are stretches of rows, and where they are known, rows say everything. No
row is looked at in Python but those of matches, and of timeouts where somebody asks for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from millrace.patterns.cep.dfa import Flags, LazyDfa, Numbers, ScanResults, is_regular
from millrace.patterns.cep.matcher import END_OF_STREAM, Matcher
from millrace.patterns.cep.partial_matches import KeyRows, MatchResults, PartialMatches

MAY_BEGIN, DUE, UNTIL = "_first", "_due", "_until"
"""Of kept rows: whether a match may begin with it; when time alone changes something for its key, and when all of it is over."""

MIN_TIME = -(2**62)


@dataclass(frozen=True)
class ContiguousResult:
    """What came of some rows: rows of matches and timeouts as those of a matcher, and the rows that are kept."""

    matches: pl.DataFrame
    timeouts: pl.DataFrame
    kept: pl.DataFrame


@dataclass(frozen=True, eq=False)
class ContiguousMatcher:
    """A regular pattern, ready for rows. `timeouts`: whether anybody asks for them."""

    matcher: Matcher
    needs_timeouts: bool = True

    @staticmethod
    def is_suitable(matcher: Matcher) -> bool:
        """Whether a pattern is found this way: it is regular, and goes on after a match where that needs no step to be known."""
        return is_regular(matcher.runner.nfa) and matcher.pattern.skip.kind in (
            "none",
            "to_next",
            "past_last",
        )

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns of kept rows."""
        return pl.Schema({**self.matcher.schema, MAY_BEGIN: pl.Boolean(), DUE: pl.Int64(), UNTIL: pl.Int64()})

    @cached_property
    def _dfa(self) -> LazyDfa:
        return LazyDfa(self.matcher.runner.nfa)

    def step(self, kept: pl.DataFrame, fresh: pl.DataFrame, watermark: int) -> ContiguousResult:
        """Takes rows in order, all before the watermark, behind those kept of their keys, and lets time pass up to it."""
        columns, mask = list(self.matcher.schema), self.matcher.predicates.mask().alias("_mask")
        old = kept.select(*columns, MAY_BEGIN, pl.lit(value=False).alias("_new"))
        new = fresh.select(*columns, pl.lit(value=True).alias(MAY_BEGIN), pl.lit(value=True).alias("_new"))
        rows = self._sort_by_key(pl.concat([old, new]).with_columns(mask))
        masks, times, keys = (
            rows[name].cast(pl.Int64).to_numpy() for name in ("_mask", self.matcher.time, "_key")
        )
        ends = np.searchsorted(keys, keys, side="right")
        begins = (
            rows.select(pl.col(MAY_BEGIN) & pl.col("_mask").is_in(self._start_masks)).to_series().to_numpy()
        )
        span = self.matcher.pattern.span or END_OF_STREAM
        found = self._dfa.scan(
            masks, times, ends, np.flatnonzero(begins), span, first_only=self._is_first_only
        )
        over = found.open & (times[found.starts] + span <= watermark)
        is_waiting, is_overdue = found.open & ~over & (watermark < END_OF_STREAM), found.is_overdue | over
        is_new = rows["_new"].to_numpy()
        if self._is_first_only:
            is_reported, is_held = self._order_matches(found, keys, is_waiting, is_overdue)
        else:
            is_reported = ((found.last_match_rows >= 0) & is_new[found.last_match_rows]) | (
                is_overdue & self.needs_timeouts
            )
            is_held = is_waiting
        after = self._find_events(rows, found, is_reported, is_overdue, is_new, span)
        return ContiguousResult(
            self.matcher.rows_of_matches(after.matches),
            self.matcher.rows_of_matches(after.timeouts),
            self._keep_rows(rows, keys, ends, found, is_waiting, is_held),
        )

    @cached_property
    def _is_first_only(self) -> bool:
        """Whether the first match of a beginning is its only one."""
        return self.matcher.pattern.skip.kind != "none"

    @cached_property
    def _start_masks(self) -> list[int]:
        """The masks with which a match may begin."""
        return [
            mask for mask in range(1 << len(self.matcher.predicates.bits)) if self.matcher.may_start(mask)
        ]

    def _sort_by_key(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of each key together, in order; `_key` numbers keys."""
        keys = list(self.matcher.keys)
        if not keys:
            return rows.with_columns(pl.lit(0, pl.UInt32).alias("_key"))
        numbers = rows.select(keys).unique().with_row_index("_key")
        return rows.join(numbers, on=keys, how="left", nulls_equal=True, maintain_order="left").sort(
            "_key", maintain_order=True
        )

    def _order_matches(
        self, found: ScanResults, keys: Numbers, is_waiting: Flags, is_overdue: Flags
    ) -> tuple[Flags, Flags]:
        """Which beginnings are told of and which are held: one that began earlier goes first, so later ones wait for it."""
        is_reported, is_held = np.zeros(len(is_waiting), dtype=np.bool_), is_waiting.copy()
        needs_timeout = is_overdue if self.needs_timeouts else np.zeros_like(is_overdue)
        skip = self.matcher.pattern.skip
        key = keys[found.starts]
        busy = np.isin(key, key[(found.last_match_rows >= 0) | needs_timeout])
        candidates = np.flatnonzero(busy & ((found.last_match_rows >= 0) | is_waiting | needs_timeout))
        current, first_allowed, blocked = -1, 0, False
        for place in candidates.tolist():
            if key[place] != current:
                current, first_allowed, blocked = key[place], 0, False
            if found.starts[place] < first_allowed:
                is_held[place] = False
                continue
            blocked = blocked or bool(is_waiting[place])
            is_held[place] = blocked
            if not blocked:
                is_reported[place] = True
                if found.last_match_rows[place] >= 0:
                    first_allowed = skip.next_start(found.starts[place], found.last_match_rows[place])
        return is_reported, is_held

    def _find_events(
        self,
        rows: pl.DataFrame,
        found: ScanResults,
        is_reported: Flags,
        is_overdue: Flags,
        is_new: Flags,
        span: int,
    ) -> MatchResults:
        """The matches and timeouts of some beginnings: only their rows are gone through one by one."""
        after, rules = MatchResults([], []), self.matcher.runner
        chosen = np.flatnonzero(is_reported)
        if not len(chosen):
            return after
        starts, until = found.starts[chosen], found.scanned_until[chosen]
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
        for base, length, is_late in zip(
            bases.tolist(), lengths.tolist(), is_overdue[chosen].tolist(), strict=True
        ):
            end = base + length
            key_results = MatchResults([], [])
            time = lists[1][base] + span if is_late else MIN_TIME
            rules.advance(
                PartialMatches(),
                KeyRows(*lists, nothing, begins, base, end),
                time,
                key_results,
                is_ended=False,
            )
            own = [match for match in key_results.matches if match.start.seq == 0]
            after.matches += (
                own if self._is_first_only else [match for match in own if fresh[base + match.tail.event.seq]]
            )
            after.timeouts += [match for match in key_results.timeouts if match.start.seq == 0]
        return after

    def _keep_rows(
        self,
        rows: pl.DataFrame,
        keys: Numbers,
        ends: Numbers,
        found: ScanResults,
        is_waiting: Flags,
        is_held: Flags,
    ) -> pl.DataFrame:
        """From the first beginning that is held, the rows of each key."""
        starts = found.starts[is_held]
        if not len(starts):
            return self.schema.to_frame()
        of_key, first = np.unique(keys[starts], return_index=True)
        first_kept = starts[first]
        lengths = ends[first_kept] - first_kept
        places = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths - first_kept, lengths)
        begins = np.zeros(len(keys), dtype=np.bool_)
        begins[starts] = True
        span = self.matcher.pattern.span
        times = rows[self.matcher.time].to_numpy()
        held_back = np.isin(of_key, keys[found.starts[is_held & ~is_waiting]]) | self.needs_timeouts
        due = (
            np.where(held_back, times[first_kept] + (span or 0), END_OF_STREAM)
            if span is not None
            else np.full(len(of_key), END_OF_STREAM)
        )
        last = np.append(first[1:], len(starts)) - 1
        until = times[starts[last]] + span if span is not None else np.full(len(of_key), END_OF_STREAM)
        kept: pl.DataFrame = rows[places].with_columns(
            pl.Series(MAY_BEGIN, begins[places]),
            pl.Series(DUE, np.repeat(due, lengths)),
            pl.Series(UNTIL, np.repeat(until, lengths)),
        )
        return kept.select(list(self.schema))
