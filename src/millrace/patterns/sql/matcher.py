"""Rows of partitions in order, as they come: what is shown of them, and what must be kept until more rows have come."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import polars as pl

from millrace.patterns.cep.encoding import widened
from millrace.patterns.sql.compiled import Looking, Shown
from millrace.patterns.sql.grammar import may_be_empty
from millrace.patterns.sql.program import firsts
from millrace.patterns.sql.scene import Row, Scene, Undecided

Key = tuple[Any, ...]
VERSION = 1


@dataclass(frozen=True)
class Course:
    """What is kept of a partition: rows, and where among them the search goes on."""

    rows: tuple[Row, ...] = ()
    start: int = 0
    number: int = 1
    """Of the next match."""
    matched: int = 0
    """The rows before this place belong to matches, as far as that matters."""
    before: bool = False
    """Whether there were rows before these."""

    def dump(self) -> bytes:
        """As bytes."""
        return msgspec.msgpack.encode(
            [VERSION, self.rows, self.start, self.number, self.matched, self.before]
        )

    @classmethod
    def load(cls, data: bytes, columns: Sequence[str] = ()) -> Course:
        """What `dump` wrote; with `columns`, its rows have those, and a mask."""
        version, rows, *rest = msgspec.msgpack.decode(data)
        if version != VERSION:
            raise ValueError(
                f"row patterns of version {version}, but this is version {VERSION}; go on with the version that wrote it, or compute results anew (millrace backfill)"
            )
        return cls(tuple(widened(row, len(columns) + 1, columns) for row in rows), *rest)


@dataclass(frozen=True, eq=False)
class RowMatcher:
    """A row pattern that follows partitions."""

    looking: Looking
    keys: tuple[str, ...] = ()

    def step(
        self, courses: Mapping[Key, Course], frame: pl.DataFrame, watermark: int | None, *, ended: bool
    ) -> tuple[dict[Key, Course | None], list[Shown]]:
        """Takes rows, in order, and says what became of the courses given and of new ones (None: nothing need be known), and what is shown."""
        changed: dict[Key, Course | None] = {}
        shown: list[Shown] = []
        lanes = dict(self.lanes(frame, courses))
        for key in dict.fromkeys((*lanes, *courses)):
            course = courses.get(key)
            after, found = self.follow(course, lanes.get(key, ()), watermark, ended=ended)
            shown += found
            if course is not None or after is not None:
                changed[key] = after
        return changed, shown

    def follow(
        self, known: Course | None, rows: Sequence[Row], watermark: int | None, *, ended: bool
    ) -> tuple[Course | None, list[Shown]]:
        """One partition: rows, then time that passes."""
        looking, shown, course = self.looking, list[Shown](), known or Course()
        scene = Scene([*course.rows, *rows], ended=ended, before=course.before)
        start, number, matched = course.start, course.number, course.matched
        while start < len(scene.rows):
            scene.number = number
            try:
                found = (
                    looking.search.find(scene, start, watermark)
                    if self._may_begin(scene.rows[start])
                    else None
                )
                made = [] if found is None else list(looking.shown(scene, found, start, number))
            except Undecided:
                break
            if found is None:
                shown += looking.unmatched(scene.rows[start]) if start >= matched else ()
                start += 1
                continue
            shown += made
            matched = max(matched, start + len(found.labels))
            start, number = looking.next_start(found.labels, start), number + 1
        return self._kept(course, scene, start, number, matched), shown

    def _kept(self, course: Course, scene: Scene, start: int, number: int, matched: int) -> Course | None:
        first = max(0, start - self._reach)
        rows = tuple(scene.rows[first:])
        if scene.ended or not (rows or self._for_ever):
            return None
        return Course(rows, start - first, number, max(0, matched - first), course.before or first > 0)

    @cached_property
    def _reach(self) -> int:
        return self.looking.reach

    @cached_property
    def _for_ever(self) -> bool:
        """Whether something of a partition matters for as long as there is a stream."""
        return self.looking.counts or self.looking.said.anchored

    @property
    def lasting(self) -> bool:
        """Whether a course is kept though nothing has begun."""
        return self._for_ever or self._reach > 0

    def _may_begin(self, row: Row) -> bool:
        """Whether a match can begin with a row, as far as the conditions computed by columns tell."""
        return self._beginnings is None or row[-1] & self._beginnings != 0

    @cached_property
    def _beginnings(self) -> int | None:
        """The bits of which the first row of a match has one; None: it need not have any."""
        wanted, bits = firsts(self.looking.program), list(self.looking.bits)
        if may_be_empty(self.looking.said.pattern) or not wanted <= set(bits):
            return None
        return sum(1 << bits.index(one) for one in wanted)

    def lanes(
        self, frame: pl.DataFrame, courses: Collection[Key] | None = None
    ) -> Iterator[tuple[Key, list[Row]]]:
        """The rows of each key, with their bits; with `courses`, the keys that have one, only of keys that matter."""
        columns, keys = list(self.looking.schema), list(self.keys)
        ready = frame.select(*columns, self.looking.mask().alias("_mask"))
        if (
            courses is not None
            and self._beginnings is not None
            and keys
            and not self.lasting
            and not self.looking.said.unmatched
        ):
            begins = ready.filter(pl.col("_mask") & self._beginnings != 0).select(keys)
            known = pl.DataFrame(
                list(courses), schema={key: self.looking.schema[key] for key in keys}, orient="row"
            )
            wanted = pl.concat([begins, known]).unique()
            ready = ready.join(wanted, on=keys, how="semi", nulls_equal=True, maintain_order="left")
        places = [columns.index(key) for key in keys]
        lanes: dict[Key, list[Row]] = {}
        for row in ready.rows():
            lanes.setdefault(tuple(row[place] for place in places), []).append(row)
        yield from lanes.items()
