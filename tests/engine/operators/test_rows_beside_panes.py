"""Rows of topics and results in one stream: what follows is held to the model."""

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from chain_links import CHANGELOGS, ROWS, UNBOUNDED, Link, plain, source, unwindowed
from millrace import aggregates, testing, windows
from millrace.engine import fingerprints
from millrace.engine.plan import Plan
from millrace.errors import DefinitionError
from millrace.stream import Stream
from strategies import A, B, examples, write
from test_chains import hold_chains


def beside_rows(link: Link, stream: Stream, unit: int) -> Stream:
    """The results of a link and rows of another topic, of which some are late for what follows."""
    return plain(source(unit, B)).union(plain(link(stream, unit)))


def beside_late_rows(link: Link, stream: Stream, unit: int) -> Stream:
    late = source(unit, B).group_by("k").over(n=aggregates.count()).late()
    return plain(link(stream, unit)).union(plain(late))


def counted(stream: Stream, unit: int) -> Stream:
    windowed = stream.window(windows.sliding(4 * unit, every=2 * unit), lateness=2 * unit).group_by("k")
    return windowed.aggregate(n=aggregates.count(), m=aggregates.max("v"), v=aggregates.latest("v"))


def counted_in_all(stream: Stream, unit: int) -> Stream:
    return unwindowed(stream).group_by("k").aggregate(n=aggregates.count(), s=aggregates.sum("v"))


def refused(stream: Stream, unit: int) -> Stream:
    return counted(stream, unit).late()


def joined(stream: Stream, unit: int) -> Stream:
    return stream.group_by("k").join(source(unit, A).group_by("k"), ttl=4 * unit, how="full")


def in_window_join(stream: Stream, unit: int) -> Stream:
    """Rows on the left, rows and a changelog on the right."""
    window = windows.fixed(4 * unit)
    left = source(unit, A).window(window).group_by("k")
    return left.join(stream.window(window).group_by("k"), how="full")


def settled(stream: Stream, unit: int) -> Stream:
    return stream.with_columns(w=pl.col("v")).final().group_by("k").over(n=aggregates.count())


def written(stream: Stream, unit: int) -> Stream:
    return stream


FOLLOWING: Mapping[str, Link] = {
    made.__name__: made
    for made in (counted, counted_in_all, refused, joined, in_window_join, settled, written)
}


def unions(first: Mapping[str, Link], then: Link, unit: int) -> dict[str, Stream]:
    return {
        f"{name}-{made.__name__}": then(made(link, source(unit), unit), unit)
        for name, link in first.items()
        for made in (beside_rows, beside_late_rows)
    }


@pytest.mark.parametrize("then", list(FOLLOWING))
@given(data=st.data())
@examples(2)
def test_rows_and_a_changelog_are_a_changelog(then: str, data: st.DataObject) -> None:
    hold_chains(data, lambda unit: unions(CHANGELOGS, FOLLOWING[then], unit), most=16)


@pytest.mark.parametrize("then", ["counted_in_all", "written"])
@given(data=st.data())
@examples(2)
def test_rows_and_what_is_never_final_are_a_changelog(then: str, data: st.DataObject) -> None:
    hold_chains(data, lambda unit: unions(UNBOUNDED, FOLLOWING[then], unit), most=16)


@pytest.mark.parametrize("then", [*FOLLOWING, "in_sessions", "processed", "recognized"])
@given(data=st.data())
@examples(2)
def test_rows_and_results_that_are_shown_once_are_rows(then: str, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(ROWS)), min_size=3, max_size=3, unique=True))
    firsts, last = {name: ROWS[name] for name in names}, {**ROWS, **FOLLOWING}[then]
    hold_chains(data, lambda unit: unions(firsts, last, unit), most=16)


def corrected_counts() -> Stream:
    rows = mr.read(A).window(windows.fixed(4), lateness=2)
    return rows.group_by("k").count(name="v")


@pytest.mark.parametrize(
    ("follow", "message"),
    [
        (lambda both: both.window(windows.sessions(3)).group_by("k").count(), "say .final\\(\\) before it"),
        (lambda both: both.group_by("k").deduplicate("v", within=5), "say .final\\(\\) before it"),
        (lambda both: both.group_by("k").over(n=aggregates.count()), "say .final\\(\\) before it"),
    ],
)
def test_what_takes_rows_in_order_refuses_a_union_with_a_changelog(follow: Any, message: str) -> None:
    both = mr.read(B).select("k", "v").union(corrected_counts())
    with pytest.raises(DefinitionError, match=message):
        follow(both)
    follow(both.final())


def test_state_of_panes_alone_does_not_fit_rows_beside_them() -> None:
    def plan(stream: Stream) -> Plan:
        counts = stream.window(windows.fixed(8)).group_by("k").count(name="n")
        return Plan.of([mr.Job("counts", write(counts, "analytics.counts"))], slots=1)

    alone, beside = plan(corrected_counts()), plan(corrected_counts().union(mr.read(B).select("k", "v")))
    [stored] = [text for id, text in alone.fingerprints.items() if id.endswith("-2")]
    [operator] = [operator for operator in beside.operators if not operator.over_rows]
    assert "takes rows beside panes" in str(fingerprints.find_difference(stored, operator))


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_row_is_a_result_that_is_shown_once(on: testing.On) -> None:
    both = corrected_counts().union(mr.read(B).select("k", "v"))
    assert "ingestion_time" not in both.columns
    script = testing.Script(mr.Job("both", write(both, "analytics.both")), on=on)
    script.events({"k": "a", "v": 7, "event_time": 1}, topic=B)
    script.events({"k": "a", "v": 9, "event_time": 2}, topic=A)
    script.watermark(4)
    shown = [(row["v"], row["window_start"], row["window_end"], row["op"]) for row in script.panes()]
    assert shown == [(7, 1, 2, "+"), (1, 0, 4, "+")]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_late_row_is_refused_and_a_late_correction_is_not(on: testing.On) -> None:
    both = corrected_counts().union(mr.read(B).select("k", "v"))
    totals = both.window(windows.fixed(4)).group_by("k").sum("v", name="s")
    outputs = write(totals, "analytics.totals"), write(totals.late().select("k", "v"), "analytics.late")
    script = testing.Script(mr.Job("totals", *outputs), on=on)
    script.events({"k": "a", "v": 9, "event_time": 2}, topic=A)
    script.events({"k": "a", "v": 7, "event_time": 1}, topic=B)
    script.watermark(4)
    assert [row["s"] for row in script.panes("analytics.totals")] == [8]
    script.events({"k": "a", "v": 9, "event_time": 2}, topic=A)
    script.events({"k": "a", "v": 5, "event_time": 1}, topic=B)
    assert [(row["s"], row["op"]) for row in script.panes("analytics.totals")] == [(9, "+")]
