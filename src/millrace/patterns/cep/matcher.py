"""The matcher: rows in order of event time in, matches and timeouts out. Pure: what is known of each key is given and returned.

Conditions on the row are computed as columns, once for all rows; then only keys in which a match has begun or may begin are looked at.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from millrace.errors import DefinitionError
from millrace.patterns.builder import Pattern
from millrace.patterns.cep.match_buffer import Memory, chain
from millrace.patterns.cep.nfa import Automaton, State, conditions, passes_over, reachable
from millrace.patterns.cep.partial_matches import MOST, Course, Effort, Found, Lane, Match, Rules
from millrace.patterns.cep.predicates import Tests, check_conditions, columns_of

Key = tuple[Any, ...]
END = 2**62
"""The watermark at the end of a stream: nothing comes any more."""

_PLAIN = (pl.String, pl.Boolean, pl.Binary, pl.Null)

MATCH, STEP, AT = "_match", "_step", "_at"
"""Of the rows of matches: which match, which step took it, and when the match was known, if by time that passed."""


@dataclass(frozen=True)
class Matched:
    """What came of a batch: the courses that changed (None: there is nothing more to know of the key), and rows of matches and timeouts."""

    courses: Mapping[Key, Course | None]
    matches: pl.DataFrame
    timeouts: pl.DataFrame


@dataclass(frozen=True, eq=False)
class Matcher:
    """A pattern, ready for rows of a schema."""

    pattern: Pattern
    schema: pl.Schema
    keys: tuple[str, ...]
    time: str = "event_time"
    most: int = MOST
    timeouts: bool = True
    """Whether anybody asks for them: how many partial matches have the same events may depend on what they pass over."""
    _starting: dict[int, bool] = field(default_factory=dict, repr=False)
    _passing: dict[int, bool] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        missing = sorted(
            column for column in columns_of(conditions(self.pattern)) if column not in self.schema
        )
        if missing:
            raise DefinitionError(
                f"the pattern {self.pattern} asks for {', '.join(missing)}, which rows do not have; there are {', '.join(self.schema)}"
            )
        _ = self.rules
        try:
            check_conditions(conditions(self.pattern), self.schema)
        except pl.exceptions.PolarsError as error:
            reason = str(error).partition("\n")[0]
            raise DefinitionError(
                f"the pattern {self.pattern} does not fit the columns {dict(self.schema)}: {reason}"
            ) from error

    @cached_property
    def tests(self) -> Tests:
        """The columns that conditions need."""
        return Tests(Memory(list(self.schema), [step.name for step in self.pattern.steps]))

    @cached_property
    def rules(self) -> Rules:
        """How the courses of keys go."""
        automaton = Automaton(self.pattern, self.tests)
        return Rules(automaton, self.tests.memory, self.pattern.span, self.pattern.skip, self.most)

    @property
    def states(self) -> Sequence[State]:
        """What partial matches are in, by number."""
        return self.rules.automaton.states

    def step(self, courses: Mapping[Key, Course], frame: pl.DataFrame, watermark: int) -> Matched:
        """Takes rows, in order of event time and all before the watermark, and lets time pass up to it, in the keys given, too."""
        return self.follow(courses, self.ready(frame), watermark)

    def ready(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that can matter, with the columns that conditions need: not those that every match passes over, and none begins with."""
        extras = [expr.alias(f"_extra{i}") for i, expr in enumerate(self.tests.extras)]
        ready = frame.select(*self.schema, self.tests.mask().alias("_mask"), *extras)
        masks = ready["_mask"].unique().to_list()
        begins = [mask for mask in masks if self.may_start(mask)]
        matters = [mask for mask in masks if mask in begins or not self._passed_over(mask)]
        ready = ready if len(matters) == len(masks) else ready.filter(pl.col("_mask").is_in(matters))
        return ready.with_columns(pl.col("_mask").is_in(begins).alias("_begins"))

    def follow(
        self, courses: Mapping[Key, Course], ready: pl.DataFrame, watermark: int, effort: Effort | None = None
    ) -> Matched:
        """What `step` does, with rows that are `ready`; `effort`: how much may be done for it."""
        found = Found([], [], effort or Effort())
        changed: dict[Key, Course | None] = {}
        seen: set[Key] = set()
        for key, lane in self._lanes(courses, ready):
            seen.add(key)
            self._follow(key, courses.get(key), lane, watermark, changed, found)
        for key, course in courses.items():
            due = self.rules.due(course) if key not in seen else None
            if key not in seen and (watermark >= END or (due is not None and due <= watermark)):
                self._follow(key, course, Lane(), watermark, changed, found)
        return Matched(changed, self.rows(found.matches), self.rows(found.timeouts if self.timeouts else []))

    def _follow(
        self,
        key: Key,
        course: Course | None,
        lane: Lane,
        watermark: int,
        changed: dict[Key, Course | None],
        found: Found,
    ) -> None:
        after = self.rules.follow(course or Course(), lane, watermark, found, ended=watermark >= END)
        if course is not None or not after.over:
            changed[key] = None if after.over else after

    def _lanes(self, courses: Mapping[Key, Course], ready: pl.DataFrame) -> Iterator[tuple[Key, Lane]]:
        """The rows of each key in which a match has begun or begins."""
        columns, keys = list(self.schema), list(self.keys)
        if keys:
            numbers = ready.select(keys).unique().with_row_index("_key")
            begun = numbers.clear()
            if courses:
                known = pl.DataFrame(
                    list(courses), schema={key: self.schema[key] for key in keys}, orient="row"
                )
                begun = numbers.join(known, on=keys, how="semi", nulls_equal=True)
            ready = ready.join(numbers, on=keys, how="left", nulls_equal=True, maintain_order="left").sort(
                "_key", maintain_order=True
            )
            ready = ready.filter(
                pl.col("_begins").any().over("_key") | pl.col("_key").is_in(begun["_key"].to_list())
            )
        else:
            ready = ready.with_columns(pl.lit(0, pl.UInt32).alias("_key"))
        rows, more = ready.select(columns).rows(), [()] * ready.height
        if self.tests.extras:
            more = ready.select(f"_extra{i}" for i in range(len(self.tests.extras))).rows()
        lists = ready["_mask"].to_list(), ready[self.time].to_list(), rows, more, ready["_begins"].to_list()
        ends = (
            ready.with_row_index("_end")
            .group_by("_key", maintain_order=True)
            .agg(pl.col("_end").last() + 1)["_end"]
            .to_list()
        )
        places = [columns.index(key) for key in keys]
        for first, end in zip([0, *ends], ends, strict=False):
            yield tuple(rows[first][place] for place in places), Lane(*lists, first, end)

    def may_start(self, mask: int) -> bool:
        """Whether a row with these bits can be the first of a match."""
        if mask not in self._starting:
            tests = [state.take for state in reachable(self.rules.automaton.start) if state.take is not None]
            self._starting[mask] = any(test.may(mask) for test in tests)
        return self._starting[mask]

    def _passed_over(self, mask: int) -> bool:
        """Whether a row with these bits is passed over by every partial match."""
        if mask not in self._passing:
            self._passing[mask] = passes_over(self.rules.automaton, mask, timeouts=self.timeouts)
        return self._passing[mask]

    def rows(self, found: list[Match]) -> pl.DataFrame:
        """The rows of matches, match by match. Each event is made a row once, in however many matches it is."""
        names = self.rules.automaton.names
        places: dict[int, int] = {}
        events: list[tuple[Any, ...]] = []
        numbers, taken, steps = array("q"), array("q"), array("q")
        for number, match in enumerate(found):
            for link in reversed(list(chain(match.node, match.start.seq))):
                place = places.setdefault(id(link.event), len(events))
                if place == len(events):
                    events.append(link.event.row)
                numbers.append(number)
                taken.append(place)
                steps.append(link.step)
        ats = pl.Series(AT, [match.at for match in found], pl.Int64)
        which, step, row = (pl.Series(np.frombuffer(given, np.int64)) for given in (numbers, steps, taken))
        made = (which.alias(MATCH), pl.Series(STEP, names, pl.String).gather(step), ats.gather(which))
        return pl.DataFrame(made).hstack(
            pl.DataFrame(events, schema=self.schema, orient="row").select(pl.all().gather(row))
        )


def check_types(schema: pl.Schema) -> None:
    """Refuses columns whose values would not come back from stored state as they were."""
    for name, dtype in schema.items():
        if not _storable(dtype):
            raise DefinitionError(
                f"a pattern remembers whole rows, but {name} is {dtype}, which cannot be stored; cast it, or select() other columns"
            )


def _storable(dtype: pl.DataType) -> bool:
    if isinstance(dtype, pl.List):
        return _storable(dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner())
    if isinstance(dtype, pl.Struct):
        return all(
            _storable(field.dtype if isinstance(field.dtype, pl.DataType) else field.dtype())
            for field in dtype.fields
        )
    if isinstance(dtype, pl.Datetime):
        return dtype.time_zone is not None
    return dtype.is_integer() or dtype.is_float() or isinstance(dtype, _PLAIN)
