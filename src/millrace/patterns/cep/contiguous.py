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

Rows are not moved: their numbers are sorted, key by key (`key_order.py`), and the scan needs no more of them
than times and masks. Gathered are the rows of matches, those of timeouts that somebody asks for, and those
that are kept. Which step took which row is worked out once for each sequence of masks (`match_paths.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from millrace.durations import END_OF_STREAM
from millrace.patterns.cep.dfa import Flags, LazyDfa, Numbers, ScanResults, is_regular
from millrace.patterns.cep.key_order import NumberedKeys, ends_of_keys, join_ranges, sort_by_key_and_time
from millrace.patterns.cep.match_paths import MatchPath, MatchPaths
from millrace.patterns.cep.matcher import Matcher
from millrace.values.columns import DUE, EXPIRES_AT, MASK, MATCH_NUMBER, MAY_BEGIN, STEP, TIMED_OUT_AT


@dataclass(frozen=True)
class ContiguousResult:
    """Rows of matches and of timeouts, shaped as those of `Matcher`, and the rows to keep."""

    matches: pl.DataFrame
    timeouts: pl.DataFrame
    kept: pl.DataFrame


@dataclass(frozen=True)
class _RowsByKey:
    """The kept rows and the new ones behind them, key by key and in order."""

    frame: pl.DataFrame
    order: Numbers
    """Where each row is in the frame."""
    keys: Numbers
    """The number of its key."""
    ends: Numbers
    """Where the rows of its key end."""
    times: Numbers
    masks: Numbers
    is_new: Flags
    begins: Flags
    """Whether a match may begin with it."""

    def gather(self, places: Numbers) -> pl.DataFrame:
        """The rows at some places."""
        return self.frame[self.order[places]]


@dataclass
class _FoundEvents:
    """The events of matches, match by match."""

    numbers: list[int] = field(default_factory=list)
    """The number of its match."""
    places: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    known_at: list[int | None] = field(default_factory=list)
    """When its match was given up."""
    count: int = 0

    def add(self, path: MatchPath, base: int, known_at: int | None) -> None:
        """Adds a match that begins at a place."""
        self.numbers += [self.count] * len(path.rows)
        self.places += [base + row for row in path.rows]
        self.steps += path.steps
        self.known_at += [known_at] * len(path.rows)
        self.count += 1


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

    def step(
        self,
        kept: pl.DataFrame,
        fresh: pl.DataFrame,
        watermark: int,
        *,
        keys: NumberedKeys | None = None,
        ties: Sequence[str] = (),
    ) -> ContiguousResult:
        """Matches new rows behind the kept rows of their keys, all before the watermark,
        and lets time pass up to it.

        `keys`: those of the new rows; `ties`: columns that order rows of one key and time, by default as they
        come.
        """
        rows = self._order_rows(kept, fresh, keys or NumberedKeys.of(fresh, self.matcher.keys), ties)
        span = self.matcher.pattern.span or END_OF_STREAM
        starts = np.flatnonzero(rows.begins)
        found = self._dfa.scan(
            rows.masks, rows.times, rows.ends, starts, span, first_only=self._is_first_only
        ).without_failed()
        over = found.open & (rows.times[found.starts] + span <= watermark)
        is_waiting, is_overdue = found.open & ~over & (watermark < END_OF_STREAM), found.is_overdue | over
        if self._is_first_only:
            is_reported, is_held = self._order_matches(found, rows.keys, is_waiting, is_overdue)
        else:
            is_reported = ((found.last_match_rows >= 0) & rows.is_new[found.last_match_rows]) | (
                is_overdue & self.needs_timeouts
            )
            is_held = is_waiting
        matches, timeouts = self._find_events(rows, found, is_reported, is_overdue)
        return ContiguousResult(
            self._rows_of_matches(rows, matches),
            self._rows_of_matches(rows, timeouts),
            self._keep_rows(rows, found, is_waiting, is_held),
        )

    @cached_property
    def _dfa(self) -> LazyDfa:
        return LazyDfa(self.matcher.runner.nfa)

    @cached_property
    def _paths(self) -> MatchPaths:
        return MatchPaths(self.matcher.runner)

    @cached_property
    def _is_first_only(self) -> bool:
        """Whether a beginning has one match at most, its first."""
        return self.matcher.pattern.skip.kind != "none"

    @cached_property
    def _may_start(self) -> Flags:
        """For each mask, whether a row with it may be the first of a match."""
        masks = range(1 << len(self.matcher.predicates.bits))
        return np.array([self.matcher.may_start(mask) for mask in masks])

    def _order_rows(
        self, kept: pl.DataFrame, fresh: pl.DataFrame, keys: NumberedKeys, ties: Sequence[str]
    ) -> _RowsByKey:
        columns, old = list(self.matcher.schema), len(kept)
        frame = pl.concat([kept.select(columns), fresh.select(columns)])
        numbers = np.concatenate([keys.number_others(kept), keys.numbers])
        times = frame[self.matcher.time].to_numpy()
        tie_breakers = [
            np.concatenate([np.full(old, np.iinfo(np.int64).min), fresh[tie].to_numpy()]) for tie in ties
        ]
        order = sort_by_key_and_time(numbers, times, tie_breakers)
        masks = frame.with_columns(self.matcher.predicates.mask().alias(MASK))[MASK].to_numpy()[order]
        is_new, begins = order >= old, self._may_start[masks]
        if old:
            begins &= np.concatenate([kept[MAY_BEGIN].to_numpy(), np.ones(len(fresh), np.bool_)])[order]
        by_key = numbers[order]
        return _RowsByKey(frame, order, by_key, ends_of_keys(by_key), times[order], masks, is_new, begins)

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
        self, rows: _RowsByKey, found: ScanResults, is_reported: Flags, is_overdue: Flags
    ) -> tuple[_FoundEvents, _FoundEvents]:
        """The events of the matches and timeouts that are reported."""
        matches, timeouts, span = _FoundEvents(), _FoundEvents(), self.matcher.pattern.span or 0
        chosen = np.flatnonzero(is_reported)
        ranges = (
            found.starts[chosen].tolist(),
            found.scanned_until[chosen].tolist(),
            is_overdue[chosen].tolist(),
        )
        for base, end, is_late in zip(*ranges, strict=True):
            masks, time = rows.masks[base:end], int(rows.times[base])
            paths = self._paths.find(masks.tolist(), masks.tobytes(), time, is_overdue=is_late)
            for path in paths.matches:
                if self._is_first_only or rows.is_new[base + path.rows[-1]]:
                    matches.add(path, base, None)
            for path in paths.timeouts if self.needs_timeouts else ():
                timeouts.add(path, base, time + span)
        return matches, timeouts

    def _rows_of_matches(self, rows: _RowsByKey, found: _FoundEvents) -> pl.DataFrame:
        """The rows of matches, match by match, as `Matcher.rows_of_matches` makes them."""
        names = pl.Series(STEP, self.matcher.runner.nfa.names, pl.String)
        match_columns = (
            pl.Series(MATCH_NUMBER, found.numbers, pl.Int64),
            names.gather(pl.Series(found.steps, dtype=pl.Int64)),
            pl.Series(TIMED_OUT_AT, found.known_at, pl.Int64),
        )
        return pl.DataFrame(match_columns).hstack(rows.gather(np.array(found.places, np.int64)))

    def _keep_rows(
        self, rows: _RowsByKey, found: ScanResults, is_waiting: Flags, is_held: Flags
    ) -> pl.DataFrame:
        """The rows of each key from its first kept beginning on."""
        starts, keys, times = found.starts[is_held], rows.keys, rows.times
        if not len(starts):
            return self.schema.to_frame()
        of_key, first = np.unique(keys[starts], return_index=True)
        first_kept = starts[first]
        lengths = rows.ends[first_kept] - first_kept
        places = join_ranges(first_kept, lengths)
        begins = np.zeros(len(keys), dtype=np.bool_)
        begins[starts] = True
        span = self.matcher.pattern.span
        held_back = np.isin(of_key, keys[found.starts[is_held & ~is_waiting]]) | self.needs_timeouts
        due = (
            np.where(held_back, times[first_kept] + (span or 0), END_OF_STREAM)
            if span is not None
            else np.full(len(of_key), END_OF_STREAM)
        )
        last = np.append(first[1:], len(starts)) - 1
        until = times[starts[last]] + span if span is not None else np.full(len(of_key), END_OF_STREAM)
        return rows.gather(places).with_columns(
            pl.Series(MAY_BEGIN, begins[places]),
            pl.Series(DUE, np.repeat(due, lengths)),
            pl.Series(EXPIRES_AT, np.repeat(until, lengths)),
        )
