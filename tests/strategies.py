"""Random jobs, events and batch cuts for property tests, and how many of them are tried."""

import math
import os
import random
import types
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import polars as pl
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

import millrace as mr
from aggregate_strategies import aggregate_of, columns_but_lists, condition_of
from millrace import watermarks
from millrace.graph import Aggregation, SingleGroup
from millrace.graph.explain import explain
from millrace.stream import Job, Output, Stream
from millrace.testing.model.source import SourceEvent
from millrace.topics import Topic
from millrace.watermarks import Watermark
from millrace.windows import GlobalWindow
from windowings import windowed, windowed_anyhow


def examples(count: int) -> settings:
    """So many random examples, unless `MILLRACE_EXAMPLES` says another number or the profile is `few`; a
    failure is shrunk unless `MILLRACE_SHRINK` is 0, but not explained at length.
    """
    shrink = [] if os.environ.get("MILLRACE_SHRINK") == "0" else [Phase.shrink]
    few = (
        min(count, settings.get_profile("few").max_examples)
        if os.environ.get("HYPOTHESIS_PROFILE") == "few"
        else count
    )
    return settings(
        max_examples=int(os.environ.get("MILLRACE_EXAMPLES", few)),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        derandomize=count < 1_000 and os.environ.get("HYPOTHESIS_PROFILE") != "random",
        report_multiple_bugs=False,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, *shrink],
    )


@dataclass(frozen=True)
class Reading:
    """What the random topics hold: something of every kind, null now and then."""

    k: str | None
    g: int | None
    v: int | None
    x: float | None
    b: bool | None


A, B = Topic("input.a", Reading), Topic("input.b", Reading)
EPOCHS = (0, 1_700_000_000_000)
YEAR_3000 = 32_503_680_000_000
KINDS = {"k": "text", "g": "int", "v": "int", "x": "float", "b": "bool"}
"""The columns of readings; a `rough` number is one whose last digit may depend on how it was computed, so it
is not used as a key and not summed on.
"""

_PYTHON: dict[Any, Any] = {pl.String: str, pl.Int64: int, pl.Float64: float, pl.Boolean: bool}


@lru_cache(maxsize=4096)
def type_of(columns: tuple[tuple[str, Any], ...], called: str = "Row") -> type:
    """An event type with these columns, for a topic to write to."""
    fields: list[tuple[str, Any]] = []
    for name, dtype in columns:
        inner = dtype.inner if isinstance(dtype, pl.List) else dtype
        if isinstance(inner, pl.Struct):
            python = type_of(tuple((part.name, part.dtype) for part in inner.fields), f"Row_{name}")
        else:
            python = _PYTHON[inner.base_type()]
        fields.append(
            (name, types.GenericAlias(list, python) if isinstance(dtype, pl.List) else python | None)
        )
    return make_dataclass(called, fields)


def write(stream: Stream, name: str) -> Output:
    """Ends a stream in a topic that fits it."""
    own = [(c, t) for c, t in stream.node.schema.items() if c not in mr.topics.SYSTEM_COLUMNS]
    return stream.write(Topic(name, type_of(tuple(own))))


@dataclass(frozen=True)
class Given:
    """Jobs, and how time passes for them."""

    jobs: tuple[Job, ...]
    unit: int
    partitions: dict[str, int]

    def __repr__(self) -> str:
        """What the jobs do, and not how they are made."""
        return f"{explain(self.jobs)}\npartitions {self.partitions}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@dataclass(frozen=True)
class Batch:
    """Rows, the clock, and whether the engine is restarted before."""

    events: tuple[SourceEvent, ...]
    now: int
    restart: bool = False
    end: bool = False


@st.composite
def watermark_of(draw: st.DrawFn, unit: int, steady: bool) -> Watermark:
    idle = None if steady else draw(st.sampled_from([None, None, 3 * unit, 12 * unit]))
    ahead = draw(st.sampled_from([3_600_000, 3_600_000, 4 * unit]))
    if not draw(st.integers(0, 6)):
        return draw(
            st.sampled_from(
                [watermarks.ascending(idle=idle, ahead=ahead), watermarks.ingestion_time(idle=idle)]
            )
        )
    if not draw(st.integers(0, 4)):
        share, start = draw(st.sampled_from([0.5, 0.9, 1.0])), draw(st.sampled_from([0, 2, 40]))
        return watermarks.percentile(share, idle=idle, ahead=ahead, start=start * unit)
    if draw(st.integers(0, 3)):
        return watermarks.bounded(draw(st.sampled_from([0, 0, 0, 1, 3, 10])) * unit, idle=idle, ahead=ahead)
    punctuation = pl.when(pl.col("v") % 3 == 0).then(
        pl.col("event_time") - draw(st.sampled_from([0, 2 * unit, -9 * unit]))
    )
    return watermarks.punctuation(punctuation, idle=idle, ahead=ahead)


@st.composite
def stateless(draw: st.DrawFn, stream: Stream, kinds: dict[str, str], place: int) -> Stream:
    """Perhaps a step that looks at each row by itself; `kinds` learns of new columns."""
    whole = sorted(c for c, kind in kinds.items() if kind == "int")
    step = draw(
        st.sampled_from(["nothing", "nothing", "filter", "with_columns", "select", "map_batches", "explode"])
    )
    if not whole or step == "nothing":
        return stream
    column = draw(st.sampled_from(whole))
    if step == "filter":
        return stream.filter(pl.col(column) > draw(st.integers(-1, 2)))
    if step == "map_batches":
        return stream.map_batches(lambda frame: frame.filter(pl.col(column).is_not_null()))
    made = f"w{place}"
    kinds[made] = "int"
    if step == "with_columns":
        return stream.with_columns((pl.col(column) % 3).alias(made))
    if step == "select":
        kept = {column, *draw(st.lists(st.sampled_from(sorted(set(kinds) - {made})), max_size=2))}
        for gone in set(kinds) - kept - {made}:
            del kinds[gone]
        return stream.select(*sorted(kept), **{made: pl.col(column) // 2})
    return stream.with_columns(pl.concat_list(pl.col(column), pl.col(column) + 1).alias(made)).explode(made)


@st.composite
def aggregated(draw: st.DrawFn, stream: Stream, kinds: dict[str, str], place: int, last: bool) -> Stream:
    """One aggregation; `kinds` becomes that of its results."""
    keys = draw(
        st.lists(
            st.sampled_from(sorted(c for c, kind in kinds.items() if kind in ("text", "int", "bool"))),
            min_size=1,
            max_size=2,
        )
    )
    computed: dict[str, pl.Expr] = {}
    if last and not draw(st.integers(0, 5)):
        keys = []  # all rows are one group
    elif kinds[keys[0]] == "int" and draw(st.booleans()):
        computed = {f"h{place}": pl.col(keys[0]) % 2}
    if keys and {*columns_but_lists(kinds)} - {*keys} and not draw(st.integers(0, 9)):
        windowing = stream.windowing
        if windowing is not None and windowing.accumulation != "discarding":
            return draw(exploded(stream.group_by(*dict.fromkeys(keys)), kinds, place))
    chosen = draw(st.lists(aggregate_of(kinds, last), min_size=1, max_size=3))
    named = {f"a{place}{i}": aggregate for i, (aggregate, _) in enumerate(chosen)}
    after = {key: kinds[key] for key in keys} | dict.fromkeys(computed, "int")
    after |= {f"a{place}{i}": kind for i, (_, kind) in enumerate(chosen)}
    kinds.clear()
    kinds.update(after)
    return (stream.group_by(*dict.fromkeys(keys), **computed) if keys else stream).aggregate(**named)


@st.composite
def exploded(draw: st.DrawFn, grouped: mr.Keyed, kinds: dict[str, str], place: int) -> Stream:
    """A ranking, row by row; `kinds` becomes that of its rows."""
    columns = [column for column in columns_but_lists(kinds) if column not in grouped.keys]
    by = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=2, unique=True))
    descending = [draw(st.booleans()) for _ in by]
    where = draw(condition_of(kinds))
    after = {c: kinds[c] for c in (*grouped.keys, *columns)} | {f"r{place}": "int"}
    ranked = grouped.top(2, *columns, by=by, descending=descending, where=where, explode=True)
    kinds.clear()
    kinds.update(after)
    return ranked.with_columns(pl.col("rank").alias(f"r{place}"))


@st.composite
def source(draw: st.DrawFn, unit: int, steady: bool) -> Stream:
    one = mr.read(A, watermark=draw(watermark_of(unit, steady)))
    if draw(st.integers(0, 2)):
        return one
    other = mr.read(draw(st.sampled_from([A, B])), watermark=draw(watermark_of(unit, steady)))
    return one.filter(pl.col("v") > 0).union(other) if draw(st.booleans()) else one.union(other)


@st.composite
def first_panes(
    draw: st.DrawFn, unit: int, kinds: dict[str, str], steady: bool, last: bool, anyhow: bool
) -> Stream:
    """The first aggregation, now and then of two topics by themselves,
    whose panes flow together: those come early.
    """
    rows = draw(source(unit, steady))
    if not steady and (anyhow or draw(st.booleans())):
        return draw(aggregated(draw(windowed_anyhow(rows, unit, not last, evicts=True)), kinds, 0, last))
    if last or draw(st.integers(0, 3)):
        rows = draw(stateless(rows, kinds, 0))
        return draw(aggregated(draw(windowed(rows, unit, steady)), kinds, 0, last))
    one = draw(windowed(rows, unit, steady))
    other = Stream(mr.read(B, watermark=draw(watermark_of(unit, steady))).node, one.windowing)
    panes = draw(aggregated(one, kinds, 0, last))
    if not isinstance(panes.node, Aggregation) or not {*panes.node.keys} <= {*KINDS}:
        return panes
    return panes.union(other.group_by(*panes.node.keys).aggregate(**panes.node.aggregates))


def is_bounded(stream: Stream) -> bool:
    """Whether windows may be set anew: of one for all time no other could ever be complete."""
    return stream.windowing is not None and not isinstance(stream.windowing.assigner, GlobalWindow)


@st.composite
def job_of(draw: st.DrawFn, name: str, unit: int, steady: bool, anyhow: bool) -> Job:
    """One to three chained aggregations, now and then windowed anew,
    with what they refused and what passes by.
    """
    kinds = dict(KINDS)
    length = draw(st.sampled_from([1, 1, 2, 2, 3]))
    stream = draw(first_panes(unit, kinds, steady, length == 1, anyhow))
    outputs = []
    if isinstance(stream.node, Aggregation | SingleGroup) and draw(st.booleans()):
        outputs.append(write(stream.late(), f"analytics.{name}-late"))
    for place in range(1, length):
        if draw(st.booleans()):
            outputs.append(write(stream, f"analytics.{name}-{place}"))
        stream = draw(stateless(stream, kinds, place))
        if not draw(st.integers(0, 3)) and is_bounded(stream):
            stream = draw(windowed(stream, unit, steady))
        stream = draw(aggregated(stream, kinds, place, place == length - 1))
    if not steady:
        stream = draw(stateless(stream, kinds, length))
    if not draw(st.integers(0, 5)):
        outputs.append(write(mr.read(A).filter(pl.col("g") > 0), f"analytics.{name}-rows"))
    return Job(name, *outputs, write(stream, f"analytics.{name}"))


@st.composite
def givens(draw: st.DrawFn, *, steady: bool = False, anyhow: bool = False) -> Given:
    """Jobs that run together. Steady ones have neither idleness nor a trigger that finishes early."""
    unit = draw(st.sampled_from([1, 1_000]))
    names = ["one", "two"] if not draw(st.integers(0, 5)) else ["one"]
    jobs = tuple(draw(job_of(name, unit, steady, anyhow)) for name in names)
    topics = {read for job in jobs for read in topics_of(job)}
    return Given(jobs, unit, {topic: draw(st.sampled_from([1, 1, 1, 2])) for topic in sorted(topics)})


def topics_of(job: Job) -> set[str]:
    return {read.topic.name for read in mr.testing.reads(job)}


READINGS: dict[str, list[Any]] = {
    "k": ["a", "a", "a", "b", "é", "", None],
    "g": [1, 1, 0, 2, None],
    "v": [3, 1, 1, 2, 3, 0, -3, None],
    "x": [0.5, -0.25, 3.0, 1e15, -1e15, 0.0, -0.0, math.inf, -math.inf, math.nan, None],
    "b": [True, True, False, None],
}
"""Few different values, so that they meet; fractions that add up exactly in any order."""

BEHIND = [0, 1, 3, 5, 8, 12, 20, 2, 4, 6, 10, 15, 0, 0, 60, -1, -4, -6]
Move: TypeAlias = tuple[tuple[str, int], int, int, dict[str, Any]]
"""From which topic and partition, how far behind, a number that decides what else happens, and the fields."""


@st.composite
def moves(draw: st.DrawFn, places: list[tuple[str, int]], most: int) -> list[Move]:
    """A few rows that hypothesis chooses and can make fewer, or many by dice,
    since what hypothesis likes is seldom late.
    """
    if draw(st.integers(0, 4)):
        dice = random.Random(draw(st.integers(0, 2**32)))
        return [
            (
                dice.choice(places),
                dice.choice(BEHIND),
                dice.randrange(31),
                {name: dice.choice(values) for name, values in READINGS.items()},
            )
            for _ in range(most)
        ]
    fields = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in READINGS.items()})
    return draw(
        st.lists(
            st.tuples(st.sampled_from(places), st.sampled_from(BEHIND), st.integers(0, 30), fields),
            min_size=1,
            max_size=most,
        )
    )


@st.composite
def batches(draw: st.DrawFn, given: Given, *, most: int = 12) -> list[Batch]:
    """A stream in which time passes, cut at random: rows come on time, late, twice,
    from 1970 and from the year 3000.
    """
    unit, now = given.unit, draw(st.sampled_from(EPOCHS))
    places = [(topic, p) for topic, n in given.partitions.items() for p in range(n)]
    ends = dict.fromkeys(places, 0)
    made: list[Batch] = []
    rows: list[SourceEvent] = []
    for place, late, chance, values in draw(moves(places, most)):
        now += chance % 5 * unit
        at = 0 if chance == 29 else YEAR_3000 if chance == 30 else now - late * unit
        rows.append(SourceEvent(place[0], place[1], ends[place], at, now, values))
        ends[place] += 1
        if chance == 28:
            rows.append(rows[-1]._replace(offset=ends[place]))
            ends[place] += 1
        if chance >= 20:
            made.append(Batch(tuple(rows), now, restart=chance % 2 == 0))
            rows = []
        if chance in (4, 5):
            now += 10 * unit
            made += [Batch(tuple(rows), now), Batch((), now + 3 * unit)]
            rows, now = [], now + 3 * unit
    return [*made, Batch(tuple(rows), now, end=draw(st.booleans()))]


def recut(made: Sequence[Batch], size: int) -> list[Batch]:
    """The same rows in batches of `size`, with a restart in the middle."""
    rows = [event for batch in made for event in batch.events]
    parts = [tuple(rows[i : i + size]) for i in range(0, len(rows), size)] or [()]
    cut = [
        Batch(part, part[-1].ingestion_time if part else made[-1].now, restart=i == len(parts) // 2)
        for i, part in enumerate(parts)
    ]
    return [*cut, Batch((), made[-1].now, end=made[-1].end)]
