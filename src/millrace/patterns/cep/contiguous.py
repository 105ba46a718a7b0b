"""Patterns of strict contiguity, matched on columns: all beginnings of all keys at once, by a DFA (`dfa.py`).

Such a pattern ignores no event, so a partial match is a range of rows of its key, and its first row
determines the rest. The state of a key is therefore rows: from the first row with which a match may still
come, up to the newest. There are no partial matches to store. In the next batch the kept rows are scanned
again, with the new rows behind them.

With `a b c` (each directly after the one before), within 10 s, and the watermark at t=5:

    batch 1   t=1 a   t=2 x   t=3 a   t=4 b        kept: t=3 a (may begin), t=4 b
    batch 2   t=6 c                                scanned: a b c → the match 3 4 6

The match that would begin at t=1 ended at x. A kept row that no match may begin with has `_first` false, so
it is not tried again.

The invariant: a match is reported once. Under `skip_none` a beginning is kept while it is open, and only
matches that end with a new row are reported. Under the other strategies a beginning that is reported, or
ruled out, is not kept.

Rows become Python objects only where they belong to a match, or to a timeout that somebody asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from millrace.durations import BEFORE_ALL, END_OF_STREAM
from millrace.patterns.cep.dfa import Flags, LazyDfa, Numbers, ScanResults, is_regular
from millrace.patterns.cep.matcher import Matcher
from millrace.patterns.cep.partial_matches import KeyRows, MatchResults, PartialMatches
from millrace.values.columns import DUE, EXPIRES_AT, IS_NEW, KEY_NUMBER, MASK, MAY_BEGIN


@dataclass(frozen=True)
class ContiguousResult:
    """Rows of matches and of timeouts, shaped as those of `Matcher`, and the rows to keep."""

    matches: pl.DataFrame
    timeouts: pl.DataFrame
    kept: pl.DataFrame


@dataclass(frozen=True, eq=False)
class ContiguousMatcher:
    """Matches a regular pattern."""

    matcher: Matcher
    needs_timeouts: bool = True

    @staticmethod
    def is_suitable(matcher: Matcher) -> bool:
        """Whether a pattern is regular, and its skip strategy names no step:
        which step took a row is not known here.
        """
        return is_regular(matcher.runner.nfa) and matcher.pattern.skip.kind in (
            "none",
            "to_next",
            "past_last",
        )

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns of the rows that are kept as state."""
        return pl.Schema(
            {**self.matcher.schema, MAY_BEGIN: pl.Boolean(), DUE: pl.Int64(), EXPIRES_AT: pl.Int64()}
        )

    @cached_property
    def _dfa(self) -> LazyDfa:
        return LazyDfa(self.matcher.runner.nfa)

    def step(self, kept: pl.DataFrame, fresh: pl.DataFrame, watermark: int) -> ContiguousResult:
        """Matches new rows behind the kept rows of their keys, all before the watermark,
        and lets time pass up to it.
        """
        columns, mask = list(self.matcher.schema), self.matcher.predicates.mask().alias(MASK)
        old = kept.select(*columns, MAY_BEGIN, pl.lit(value=False).alias(IS_NEW))
        new = fresh.select(*columns, pl.lit(value=True).alias(MAY_BEGIN), pl.lit(value=True).alias(IS_NEW))
        rows = self._sort_by_key(pl.concat([old, new]).with_columns(mask))
        masks, times, keys = (
            rows[name].cast(pl.Int64).to_numpy() for name in (MASK, self.matcher.time, KEY_NUMBER)
        )
        ends = np.searchsorted(keys, keys, side="right")
        begins = rows.select(pl.col(MAY_BEGIN) & pl.col(MASK).is_in(self._start_masks)).to_series().to_numpy()
        span = self.matcher.pattern.span or END_OF_STREAM
        found = self._dfa.scan(
            masks, times, ends, np.flatnonzero(begins), span, first_only=self._is_first_only
        )
        over = found.open & (times[found.starts] + span <= watermark)
        is_waiting, is_overdue = found.open & ~over & (watermark < END_OF_STREAM), found.is_overdue | over
        is_new = rows[IS_NEW].to_numpy()
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
        """Whether a beginning has one match at most, its first."""
        return self.matcher.pattern.skip.kind != "none"

    @cached_property
    def _start_masks(self) -> list[int]:
        """The masks of rows that may be the first of a match."""
        return [
            mask for mask in range(1 << len(self.matcher.predicates.bits)) if self.matcher.may_start(mask)
        ]

    def _sort_by_key(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Groups rows by key, in order within each key. `_key` is the number of the key."""
        keys = list(self.matcher.keys)
        if not keys:
            return rows.with_columns(pl.lit(0, pl.UInt32).alias(KEY_NUMBER))
        numbers = rows.select(keys).unique().with_row_index(KEY_NUMBER)
        return rows.join(numbers, on=keys, how="left", nulls_equal=True, maintain_order="left").sort(
            KEY_NUMBER, maintain_order=True
        )

    def _order_matches(
        self, found: ScanResults, keys: Numbers, is_waiting: Flags, is_overdue: Flags
    ) -> tuple[Flags, Flags]:
        """Which beginnings are reported, and which are kept. A beginning that is open blocks the later ones
        of its key.

        Whether an earlier match rules out a later beginning is decided by `SkipStrategy.next_start`.
        """
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
        """The events of reported matches and timeouts.
        Their rows, and no others, run through the NFA one by one.
        """
        after, rules = MatchResults([], []), self.matcher.runner
        chosen = np.flatnonzero(is_reported)
        if not len(chosen):
            return after
        lengths = found.scanned_until[chosen] - found.starts[chosen]
        bases = np.cumsum(lengths) - lengths
        places = _join_ranges(found.starts[chosen], lengths)
        part = rows[places]
        lists = (
            part[MASK].to_list(),
            part[self.matcher.time].to_list(),
            part.select(list(self.matcher.schema)).rows(),
        )
        fresh, begins = is_new[places].tolist(), np.isin(np.arange(len(places)), bases).tolist()
        nothing: list[tuple[()]] = [()] * len(places)
        spans = (bases.tolist(), lengths.tolist(), is_overdue[chosen].tolist())
        for base, length, is_late in zip(*spans, strict=True):
            key_results = MatchResults([], [])
            time = lists[1][base] + span if is_late else BEFORE_ALL
            rules.advance(
                PartialMatches(),
                KeyRows(*lists, nothing, begins, base, base + length),
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
        """The rows of each key from its first kept beginning on."""
        starts = found.starts[is_held]
        if not len(starts):
            return self.schema.to_frame()
        of_key, first = np.unique(keys[starts], return_index=True)
        first_kept = starts[first]
        lengths = ends[first_kept] - first_kept
        places = _join_ranges(first_kept, lengths)
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
            pl.Series(EXPIRES_AT, np.repeat(until, lengths)),
        )
        return kept.select(list(self.schema))


def _join_ranges(starts: Numbers, lengths: Numbers) -> Numbers:
    """The row numbers of several ranges in turn: starts 3 and 7 with lengths 2 and 3 give 3 4 7 8 9."""
    joined: Numbers = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths - starts, lengths)
    return joined
