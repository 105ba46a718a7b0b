"""The matcher: rows in order of event time in, matches and timeouts out. It is pure: the state of each key is
an argument and a result.

Conditions on the row alone are computed as columns, once for all rows (`predicates.py`). Rows that every
partial match ignores, and with which no match begins, are dropped. What remains becomes Python objects, key
by key, for the keys with a partial match or a possible beginning (`partial_matches.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from millrace.durations import END_OF_STREAM
from millrace.errors import DefinitionError
from millrace.patterns.builder import Pattern
from millrace.patterns.cep.nfa import Nfa, list_conditions
from millrace.patterns.cep.partial_matches import (
    MAX_PARTIAL_MATCHES,
    FoundMatch,
    KeyRows,
    MatchResults,
    NfaRunner,
    PartialMatches,
    WorkBudget,
)
from millrace.patterns.cep.predicates import PredicateCompiler, check_conditions, columns_of
from millrace.patterns.cep.shared_buffer import RunningAnswers, walk_back
from millrace.patterns.cep.states import NfaState, is_always_ignored, reachable_states
from millrace.values import expressions
from millrace.values.columns import (
    BEGINS,
    EXTRA_PREFIX,
    KEY_END,
    KEY_NUMBER,
    MASK,
    MATCH_NUMBER,
    STEP,
    TIMED_OUT_AT,
)

Key = tuple[Any, ...]

_STORABLE_TYPES = (
    pl.String, pl.Boolean, pl.Binary, pl.Null, pl.Decimal, pl.Date, pl.Time, pl.Enum, pl.Categorical,
)  # fmt: skip


@dataclass(frozen=True)
class MatcherResult:
    """The keys whose state changed (None: the key has no state any more),
    and the rows of matches and timeouts.
    """

    changed: Mapping[Key, PartialMatches | None]
    matches: pl.DataFrame
    timeouts: pl.DataFrame


@dataclass(frozen=True, eq=False)
class Matcher:
    """A pattern, compiled for rows of a schema."""

    pattern: Pattern
    schema: pl.Schema
    keys: tuple[str, ...]
    time: str = "event_time"
    max_partial_matches: int = MAX_PARTIAL_MATCHES
    needs_timeouts: bool = True
    """Without timeouts more rows can be dropped: see `is_always_ignored`."""
    _starts_by_mask: dict[int, bool] = field(default_factory=dict, repr=False)
    _ignored_by_mask: dict[int, bool] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        missing = sorted(
            column for column in columns_of(list_conditions(self.pattern)) if column not in self.schema
        )
        if missing:
            raise DefinitionError(
                f"the pattern {self.pattern}: {expressions.describe_unknown(missing[0], self.schema)}"
            )
        _ = self.runner
        try:
            check_conditions(list_conditions(self.pattern), self.schema)
        except pl.exceptions.PolarsError as error:
            reason = str(error).partition("\n")[0]
            raise DefinitionError(
                f"the pattern {self.pattern} does not fit the columns "
                f"{expressions.describe_columns(self.schema)}: {reason}"
            ) from error

    @cached_property
    def predicates(self) -> PredicateCompiler:
        """The compiler of conditions, which knows the columns that they need."""
        return PredicateCompiler(
            RunningAnswers(list(self.schema), [step.name for step in self.pattern.steps])
        )

    @cached_property
    def runner(self) -> NfaRunner:
        """The automaton, with its limits."""
        nfa = Nfa(self.pattern, self.predicates)
        return NfaRunner(
            nfa, self.predicates.answers, self.pattern.span, self.pattern.skip, self.max_partial_matches
        )

    @property
    def states(self) -> Sequence[NfaState]:
        """The states of the automaton by number, as stored partial matches name them."""
        return self.runner.nfa.states

    def step(
        self, matches: Mapping[Key, PartialMatches], frame: pl.DataFrame, watermark: int
    ) -> MatcherResult:
        """Processes rows, in order of event time and all before the watermark,
        then the passing of time in all keys.
        """
        return self.match_prepared(matches, self.prepare_rows(frame), watermark)

    def prepare_rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that can matter, with the columns that conditions need."""
        extras = [expr.alias(f"{EXTRA_PREFIX}{i}") for i, expr in enumerate(self.predicates.extras)]
        prepared = frame.select(*self.schema, self.predicates.mask().alias(MASK), *extras)
        masks = prepared[MASK].unique().to_list()
        begins = [mask for mask in masks if self.may_start(mask)]
        kept_masks = [mask for mask in masks if mask in begins or not self._is_ignored(mask)]
        prepared = (
            prepared if len(kept_masks) == len(masks) else prepared.filter(pl.col(MASK).is_in(kept_masks))
        )
        return prepared.with_columns(pl.col(MASK).is_in(begins).alias(BEGINS))

    def match_prepared(
        self,
        matches: Mapping[Key, PartialMatches],
        prepared: pl.DataFrame,
        watermark: int,
        budget: WorkBudget | None = None,
    ) -> MatcherResult:
        """`step` for rows from `prepare_rows`. `budget` limits the work, see `WorkBudget`."""
        found = MatchResults([], [], budget or WorkBudget())
        changed: dict[Key, PartialMatches | None] = {}
        seen: set[Key] = set()
        for key, rows in self._split_by_key(matches, prepared):
            seen.add(key)
            self._advance_key(key, matches.get(key), rows, watermark, changed, found)
        for key, partial in matches.items():
            due = self.runner.next_deadline(partial) if key not in seen else None
            if key not in seen and (watermark >= END_OF_STREAM or (due is not None and due <= watermark)):
                self._advance_key(key, partial, KeyRows(), watermark, changed, found)
        return MatcherResult(
            changed,
            self.rows_of_matches(found.matches),
            self.rows_of_matches(found.timeouts if self.needs_timeouts else []),
        )

    def _advance_key(
        self,
        key: Key,
        before: PartialMatches | None,
        rows: KeyRows,
        watermark: int,
        changed: dict[Key, PartialMatches | None],
        found: MatchResults,
    ) -> None:
        after = self.runner.advance(
            before or PartialMatches(), rows, watermark, found, is_ended=watermark >= END_OF_STREAM
        )
        if before is not None or not after.is_empty:
            changed[key] = None if after.is_empty else after

    def _split_by_key(
        self, matches: Mapping[Key, PartialMatches], prepared: pl.DataFrame
    ) -> Iterator[tuple[Key, KeyRows]]:
        """The rows of each key that has a partial match or a possible beginning."""
        columns, keys = list(self.schema), list(self.keys)
        if keys:
            numbers = prepared.select(keys).unique().with_row_index(KEY_NUMBER)
            open_keys = numbers.clear()
            if matches:
                known_keys = pl.DataFrame(
                    list(matches), schema={key: self.schema[key] for key in keys}, orient="row"
                )
                open_keys = numbers.join(known_keys, on=keys, how="semi", nulls_equal=True)
            prepared = prepared.join(
                numbers, on=keys, how="left", nulls_equal=True, maintain_order="left"
            ).sort(KEY_NUMBER, maintain_order=True)
            prepared = prepared.filter(
                pl.col(BEGINS).any().over(KEY_NUMBER)
                | pl.col(KEY_NUMBER).is_in(open_keys[KEY_NUMBER].to_list())
            )
        else:
            prepared = prepared.with_columns(pl.lit(0, pl.UInt32).alias(KEY_NUMBER))
        rows, more = prepared.select(columns).rows(), [()] * prepared.height
        if self.predicates.extras:
            more = prepared.select(f"{EXTRA_PREFIX}{i}" for i in range(len(self.predicates.extras))).rows()
        lists = (
            prepared[MASK].to_list(),
            prepared[self.time].to_list(),
            rows,
            more,
            prepared[BEGINS].to_list(),
        )
        ends = (
            prepared.with_row_index(KEY_END)
            .group_by(KEY_NUMBER, maintain_order=True)
            .agg(pl.col(KEY_END).last() + 1)[KEY_END]
            .to_list()
        )
        places = [columns.index(key) for key in keys]
        for first, end in zip([0, *ends], ends, strict=False):
            yield tuple(rows[first][place] for place in places), KeyRows(*lists, first, end)

    def may_start(self, mask: int) -> bool:
        """Whether a row with this mask can be the first of a match."""
        if mask not in self._starts_by_mask:
            predicates = [
                state.take for state in reachable_states(self.runner.nfa.start) if state.take is not None
            ]
            self._starts_by_mask[mask] = any(predicate.may_hold(mask) for predicate in predicates)
        return self._starts_by_mask[mask]

    def is_quiet(self, mask: int) -> bool:
        """Whether a row with this mask can only begin matches: every partial match ignores it, and no match
        ends with it.
        """
        starts = [
            state.to
            for state in reachable_states(self.runner.nfa.start)
            if state.take is not None and state.to is not None and state.take.may_hold(mask)
        ]
        return self._is_ignored(mask) and not any(state.final or state.may_end for state in starts)

    def _is_ignored(self, mask: int) -> bool:
        """Whether every partial match ignores a row with this mask."""
        if mask not in self._ignored_by_mask:
            self._ignored_by_mask[mask] = is_always_ignored(
                self.runner.nfa.states, mask, timeouts=self.needs_timeouts
            )
        return self._ignored_by_mask[mask]

    def rows_of_matches(self, found: list[FoundMatch]) -> pl.DataFrame:
        """The rows of matches, match by match. An event that is in many matches is converted once."""
        names = self.runner.nfa.names
        places: dict[int, int] = {}
        events: list[tuple[Any, ...]] = []
        numbers, event_indexes, steps = array("q"), array("q"), array("q")
        for number, match in enumerate(found):
            for entry in reversed(list(walk_back(match.tail, match.start.seq))):
                place = places.setdefault(id(entry.event), len(events))
                if place == len(events):
                    events.append(entry.event.row)
                numbers.append(number)
                event_indexes.append(place)
                steps.append(entry.step)
        ats = pl.Series(TIMED_OUT_AT, [match.known_at for match in found], pl.Int64)
        which, step, row = (
            pl.Series(np.frombuffer(values, np.int64)) for values in (numbers, steps, event_indexes)
        )
        match_columns = (
            which.alias(MATCH_NUMBER),
            pl.Series(STEP, names, pl.String).gather(step),
            ats.gather(which),
        )
        return pl.DataFrame(match_columns).hstack(
            pl.DataFrame(events, schema=self.schema, orient="row").select(pl.all().gather(row))
        )


def check_types(schema: pl.Schema) -> None:
    """Refuses columns whose values would not survive being stored."""
    for name, dtype in schema.items():
        if not _is_storable(dtype):
            raise DefinitionError(
                f"a pattern stores whole rows, but {name} is {dtype}, which cannot be stored; cast it, or "
                "select() other columns"
            )


def _is_storable(dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.List):
        return _is_storable(dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner())
    if isinstance(dtype, pl.Struct):
        return all(
            _is_storable(field.dtype if isinstance(field.dtype, pl.DataType) else field.dtype())
            for field in dtype.fields
        )
    if isinstance(dtype, pl.Datetime | pl.Duration):
        return dtype.time_unit != "ns" or getattr(dtype, "time_zone", None) is not None
    return dtype.is_integer() or dtype.is_float() or isinstance(dtype, _STORABLE_TYPES)
