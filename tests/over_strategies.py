"""Random row frames for property tests."""

from typing import Any

from hypothesis import strategies as st

from aggregate_strategies import aggregate_of
from millrace import aggregates, frames, windows
from millrace.stream import Job, Stream
from strategies import KINDS, Given, source, stateless, topics_of, write

UNBOUNDED = ("count", "sum", "mean", "stddev", "min", "max", "latest", "earliest")
"""The aggregates that have a running form."""


@st.composite
def frame_of(draw: st.DrawFn, unit: int) -> dict[str, Any]:
    """Bounds as a user gives them; none: all rows up to this one."""
    upper = draw(st.sampled_from([0, 0, -1, -2]))
    lower = upper - draw(st.integers(0, 5))
    return draw(
        st.sampled_from(
            [
                {},
                {"rows": (None, 0)},
                {"rows": (None, -1)},
                {"range": (None, 0)},
                {"range": (None, -1)},
                {"rows": 1 - lower},
                {"rows": (lower, upper)},
                {"range": (1 - lower) * unit},
                {"range": (lower * unit, upper * unit)},
            ]
        )
    )


def has_beginning(frame: dict[str, Any]) -> bool:
    bounds = next(iter(frame.values()), (None, 0))
    return not isinstance(bounds, tuple) or bounds[0] is not None


@st.composite
def column_of(draw: st.DrawFn, unit: int, kinds: dict[str, str], bounded: bool) -> Any:
    """A function of rows, over some column."""
    column = draw(st.sampled_from(sorted(c for c, kind in kinds.items() if kind != "list")))
    n = draw(st.integers(1, 3))
    options: list[Any] = [
        frames.lag(column, n),
        frames.lead(column, n, within=draw(st.sampled_from([1, 3, 9])) * unit),
        frames.row_number(),
        frames.first(column),
        frames.last(column),
    ]
    if draw(st.booleans()):
        return draw(st.sampled_from(options))
    if bounded:
        made, _ = draw(aggregate_of(kinds, True))
        return made
    name = draw(st.sampled_from(UNBOUNDED))
    if name in ("sum", "mean", "stddev"):
        column = draw(st.sampled_from([c for c, kind in kinds.items() if kind in ("int", "float", "bool")]))
    return getattr(aggregates, name)(column)


@st.composite
def framed(draw: st.DrawFn, stream: Stream, unit: int, kinds: dict[str, str], corrected: bool) -> Stream:
    """Rows beside columns computed from those around them."""
    groups = sorted(c for c, kind in kinds.items() if kind in ("text", "int", "bool"))
    keys = dict.fromkeys(draw(st.lists(st.sampled_from(groups), min_size=1, max_size=2)))
    frame = draw(frame_of(unit))
    bounded = has_beginning(frame)
    count = draw(st.integers(1, 4))
    columns = {f"o{i}": draw(column_of(unit, kinds, bounded)) for i in range(count)}
    ttl = draw(st.sampled_from([None, None, None, 2 * unit, 9 * unit]))
    lateness = draw(st.sampled_from([1, 4, 15])) * unit if corrected else None
    return stream.group_by(*keys).over(**columns, **frame, ttl=ttl, lateness=lateness)


@st.composite
def row_frames(draw: st.DrawFn, *, corrected: bool = False) -> Given:
    """One job that adds columns to rows, now and then with an aggregation that follows."""
    unit = draw(st.sampled_from([1, 1_000]))
    kinds = dict(KINDS)
    rows = draw(stateless(draw(source(unit, False)), kinds, 0))
    stream = draw(framed(rows, unit, kinds, corrected))
    outputs = [write(stream, "analytics.framed")]
    if draw(st.booleans()):
        key = draw(st.sampled_from(sorted(c for c, kind in kinds.items() if kind in ("text", "int", "bool"))))
        counted = stream.window(windows.fixed(5 * unit)).group_by(key).count(name="n")
        outputs.append(write(counted, "analytics.counted"))
    if corrected and draw(st.booleans()):
        outputs.append(write(stream.final(), "analytics.final"))
    if draw(st.booleans()):
        outputs.append(write(stream.late(), "analytics.late"))
    job = Job("framing", *outputs)
    return Given((job,), unit, {topic: draw(st.sampled_from([1, 1, 2])) for topic in sorted(topics_of(job))})
