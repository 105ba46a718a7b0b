"""Random joins for property tests."""

from hypothesis import assume
from hypothesis import strategies as st

import millrace as mr
from millrace import aggregates
from millrace.errors import DefinitionError
from millrace.graph.build.join import JoinType
from millrace.keyed import Keyed
from millrace.stream import Job, Stream
from strategies import KINDS, A, B, Given, stateless, topics_of, watermark_of, write
from windowings import windowed, windowed_anyhow

HOWS: list[JoinType] = ["inner", "left", "right", "full"]
KEYS = [(("k",), ("k",)), (("g",), ("v",)), (("k", "g"), ("k", "v")), (("b",), ("b",))]


@st.composite
def sides(draw: st.DrawFn, unit: int, anyhow: bool) -> tuple[Stream, Stream]:
    """Two streams of rows, the first of them windowed."""
    left = mr.read(A, watermark=draw(watermark_of(unit, False)))
    right = mr.read(draw(st.sampled_from([B, B, A])), watermark=draw(watermark_of(unit, False)))
    left, right = draw(stateless(left, dict(KINDS), 0)), draw(stateless(right, dict(KINDS), 1))
    return draw(windowed_anyhow(left, unit, False) if anyhow else windowed(left, unit, False)), right


@st.composite
def grouped(draw: st.DrawFn, left: Stream, right: Stream) -> tuple[Keyed, Keyed]:
    """Both by key: rows, or panes of aggregations in the same window."""
    ours, theirs = draw(st.sampled_from(KEYS))
    assume(set(ours) <= set(left.columns) and set(theirs) <= set(right.columns))
    if draw(st.integers(0, 2)):
        return left.group_by(*ours), right.group_by(*theirs)
    there = Stream(right.node, left.windowing)
    return left.group_by(*ours).count(name="n").group_by(*ours), there.group_by(*theirs).aggregate(
        n=aggregates.count(), m=aggregates.max(theirs[0])
    ).group_by(*theirs)


@st.composite
def interval_joins(draw: st.DrawFn) -> Given:
    """One job that joins rows whose times are not far apart,
    now and then with an aggregation that follows.
    """
    unit = draw(st.sampled_from([1, 1_000]))
    left, right = draw(sides(unit, False))
    ours, theirs = draw(st.sampled_from(KEYS))
    assume(set(ours) <= set(left.columns) and set(theirs) <= set(right.columns))
    lower = draw(st.integers(-8, 8)) * unit
    within = (lower, lower + draw(st.integers(1, 12)) * unit)
    stream = left.group_by(*ours).join(
        right.group_by(*theirs), within=within, how=draw(st.sampled_from(HOWS))
    )
    outputs = [write(stream, "analytics.joined")]
    if draw(st.booleans()):
        counted = draw(windowed(stream, unit, False)).group_by(ours[0]).count(name="pairs")
        outputs.append(write(counted, "analytics.counted"))
    job = Job("joining", *outputs)
    return Given((job,), unit, {topic: draw(st.sampled_from([1, 1, 2])) for topic in sorted(topics_of(job))})


@st.composite
def joins(draw: st.DrawFn, *, anyhow: bool = False) -> Given:
    """One job that joins two streams, now and then with something that follows."""
    unit = draw(st.sampled_from([1, 1_000]))
    try:
        left, right = draw(grouped(*draw(sides(unit, anyhow))))
        stream = (
            left.join(right, how=draw(st.sampled_from(HOWS)))
            if draw(st.integers(0, 5))
            else left.cogroup(right)
        )
        outputs = [write(stream, "analytics.joined")]
        if draw(st.booleans()):
            outputs.append(write(stream.group_by(left.keys[0]).count(name="pairs"), "analytics.counted"))
        job = Job("joining", *outputs)
    except DefinitionError:
        assume(False)
    return Given((job,), unit, {topic: draw(st.sampled_from([1, 1, 2])) for topic in sorted(topics_of(job))})
