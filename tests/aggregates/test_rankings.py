"""Rankings: by several columns, with ranks, and row by row."""

from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from millrace import aggregates, triggers, windows
from millrace.aggregates import Reduction
from millrace.errors import DefinitionError
from millrace.graph.explain import explain
from millrace.stream import Stream
from millrace.testing.model import values as plain_values
from millrace.testing.script import On, Script
from strategies import A, examples, write

ROWS = mr.read(A).window(windows.fixed(10), lateness=20)


def reading(at: int, **fields: Any) -> dict[str, Any]:
    return {"k": "a", "g": 1, "v": 1, "x": 1.0, "b": True, "event_time": at, **fields}


def merged(aggregate: Reduction, parts: list[pl.DataFrame]) -> Any:
    """The answer of partials that are merged in groups, the later one first."""
    partials = [part.group_by("_g").agg(*aggregate.partials("a", pl.Null())) for part in parts if part.height]
    whole = pl.concat(reversed(partials)).group_by("_g").agg(*aggregate.merge("a", pl.Null()))
    return dict(whole.select("_g", aggregate.result("a", pl.Null())).iter_rows())


rows_of = st.fixed_dictionaries(
    {
        "_g": st.sampled_from([0, 0, 1, 2]),
        "n": st.sampled_from([None, 1, 2, 3]),
        "x": st.sampled_from([None, 0.5, -1.0, float("nan"), float("inf"), 0.0]),
        "s": st.sampled_from([None, "", "a", "b", "é"]),
    }
)


@given(
    st.lists(rows_of, min_size=1, max_size=14),
    st.integers(0, 14),
    st.permutations(["n", "x", "s"]),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.integers(1, 3),
    st.integers(1, 4),
)
@examples(150)
def test_a_ranking_by_several_columns_equals_a_plain_sort(
    rows: list[Any], cut: int, order: list[str], directions: list[bool], count: int, k: int
) -> None:
    aggregate = aggregates.top(
        k, *order[count:], by=order[:count], descending=directions[:count], ranks=directions[2]
    )
    schema = {"_g": pl.Int64, "n": pl.Int64, "x": pl.Float64, "s": pl.String}
    frame = pl.DataFrame(rows, schema=schema)
    got = merged(aggregate, [frame[:cut], frame[cut:]])
    for group, answer in got.items():
        own = [row for row in rows if row["_g"] == group]
        expected = plain_values.compute_aggregate(aggregate, own)
        assert plain_values.to_comparable(answer) == plain_values.to_comparable(expected)


def shown(stream: Stream, on: On, *steps: list[dict[str, Any]]) -> list[list[tuple[Any, ...]]]:
    """What each step shows: whether it is added or withdrawn, its rank and its value."""
    script = Script(mr.Job("one", write(stream, "analytics.one")), on=on)
    found = []
    for at, rows in enumerate(steps):
        script.events(*rows)
        script.watermark(10 + at)
        found.append(sorted((row["op"], row["rank"], row["v"]) for row in script.panes()))
    return found


@pytest.mark.parametrize("on", ["model", "engine"])
def test_rows_that_fall_out_of_a_ranking_are_withdrawn_and_others_stay(on: On) -> None:
    best = ROWS.group_by("k").top(3, "v", by="x", explode=True)
    assert best.columns[:4] == ["k", "v", "x", "rank"]
    first = [reading(1, v=1, x=9.0), reading(2, v=2, x=8.0), reading(3, v=3, x=7.0)]
    assert shown(best, on, first, [reading(4, v=4, x=7.5)], [reading(5, v=5, x=1.0)]) == [
        [("+", 1, 1), ("+", 2, 2), ("+", 3, 3)],
        [("+", 3, 4), ("-", 3, 3)],
        [],
    ]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_equal_rows_have_a_rank_each(on: On) -> None:
    best = ROWS.top(2, "v", by="x", explode=True)
    twins = [reading(1, v=1, x=2.0), reading(2, v=1, x=2.0)]
    assert shown(best, on, twins, [reading(3, v=0, x=5.0)]) == [
        [("+", 1, 1), ("+", 2, 1)],
        [("+", 1, 0), ("-", 1, 1)],
    ]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_the_most_frequent_values_row_by_row(on: On) -> None:
    often = ROWS.top(1, "v", where=pl.col("v") > 0, explode=True)
    assert often.columns[:3] == ["v", "count", "rank"]
    first = [reading(1, v=1), reading(2, v=0), reading(3, v=0)]
    assert shown(often, on, first, [reading(4, v=2), reading(5, v=2)]) == [
        [("+", 1, 1)],
        [("+", 1, 2), ("-", 1, 1)],
    ]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_ranking_of_panes_withdraws_what_they_take_back(on: On) -> None:
    """A late row moves a key past another one."""
    counts = ROWS.group_by("k").count(name="v").top(1, "k", by="v", explode=True)
    script = Script(mr.Job("one", write(counts, "analytics.one")), on=on)
    script.events(reading(1, k="a"), reading(2, k="a"), reading(3, k="b"))
    script.watermark(10)
    assert [(row["op"], row["k"], row["v"]) for row in script.panes()] == [("+", "a", 2)]
    script.events(reading(4, k="b"), reading(5, k="b"))
    script.restart()
    script.watermark(11)
    late = sorted((row["op"], row["k"], row["v"]) for row in script.panes())
    assert late == [("+", "b", 3), ("-", "a", 2)]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_ranked_rows_are_counted_and_corrected(on: On) -> None:
    """How often a value leads, over all keys."""
    leaders = ROWS.group_by("k").top(1, "v", by="x", explode=True).group_by("v").count(name="n")
    script = Script(mr.Job("one", write(leaders, "analytics.one")), on=on)
    script.events(reading(1, k="a", v=1), reading(2, k="b", v=1), reading(3, k="c", v=2))
    script.watermark(10)
    assert sorted((row["v"], row["n"]) for row in script.panes()) == [(1, 2), (2, 1)]
    script.events(reading(4, k="a", v=2, x=5.0))
    script.watermark(11)
    assert sorted((row["op"], row["v"], row["n"]) for row in script.panes()) == [("+", 1, 1), ("+", 2, 2)]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_the_final_rows_of_a_ranking_are_shown_once(on: On) -> None:
    best = ROWS.group_by("k").top(1, "v", by="x", explode=True).final()
    script = Script(mr.Job("one", write(best, "analytics.one")), on=on)
    script.events(reading(1, v=1, x=1.0))
    script.watermark(10)
    script.events(reading(2, v=2, x=2.0))
    script.watermark(29)
    assert script.panes() == []
    script.watermark(31)
    assert [(row["op"], row["rank"], row["v"]) for row in script.panes()] == [("+", 1, 2)]


@pytest.mark.parametrize("on", ["model", "engine"])
@pytest.mark.parametrize(
    "window", [windows.sessions(5), windows.sliding(10, every=5), windows.global_window()], ids=str
)
def test_what_is_shown_adds_up_to_the_ranking_in_all_windows(on: On, window: windows.WindowFn) -> None:
    rows = mr.read(A).window(window, trigger=triggers.repeatedly(triggers.after_count(1)), lateness=50)
    best = rows.group_by("k").top(2, "v", by=["x", "v"], descending=[False, True], explode=True)
    script = Script(mr.Job("one", write(best, "analytics.one")), on=on)
    held: Counter[Any] = Counter()
    fed: list[tuple[int, int, float]] = []
    for at, v, x in [(1, 1, 3.0), (8, 2, 2.0), (4, 3, 1.0), (5, 4, 1.0), (3, 5, 9.0)]:
        fed.append((at, v, x))
        script.events(reading(at, v=v, x=x))
        for row in script.panes():
            entry = ((row["window_start"], row["window_end"]), row["rank"], row["v"])
            held[entry] += 1 if row["op"] == "+" else -1
        in_windows: dict[Any, list[Any]] = {}
        for (bounds, rank, value), count in held.items():
            in_windows.setdefault(bounds, []).extend([(rank, value)] * count)
            assert count >= 0
        for (start, end), entries in in_windows.items():
            inside = sorted((x, -v) for at, v, x in fed if start <= at < end)
            assert not entries or sorted(entries) == [(i, -v) for i, (_, v) in enumerate(inside[:2], 1)]
    assert any(held.values())


def test_a_name_and_late_rows_are_asked_for_behind_the_rows() -> None:
    best = ROWS.top(2, by="v", explode=True).named("best")
    job = mr.Job("one", write(best, "analytics.one"))
    assert [*job.operator_ids.values()] == ["one/best"]
    assert best.late().columns == [*A.schema, "event_time", "ingestion_time", "reason", "missed"]
    assert "explode the ranking" in explain([job])


def test_ranks_are_numbered_on_request() -> None:
    listed = ROWS.top(2, "g", by="v", ranks=True)
    assert [field.name for field in listed.node.schema["top"].inner.fields] == ["g", "v", "rank"]  # type: ignore[attr-defined]
    often = ROWS.top(2, "g", approx=True, ranks=True)
    assert [field.name for field in often.node.schema["top"].inner.fields] == ["g", "count", "rank"]  # type: ignore[attr-defined]


ANY: Any = ROWS
WRONG: list[tuple[Any, str]] = [
    (lambda: ROWS.top(2, by=[]), r"ranks by nothing"),
    (lambda: ROWS.top(2, by=["v", "v"]), r"ranks by a column twice"),
    (lambda: ROWS.top(2, by=["v", "g"], descending=[True]), r"a list of 2, one for each"),
    (lambda: ANY.top(2, by="v", descending="no"), r"give True or False"),
    (lambda: ROWS.top(2, "v", descending=False), r"say by= to rank rows"),
    (lambda: ROWS.top(2, "v", by=pl.col("v") * 2), r"two different values are called 'v'"),
    (lambda: ROWS.top(2, by=pl.concat_list("v", "g")), r"needs values that have an order, but 'v' is List"),
    (lambda: ROWS.top(2, by=pl.col("v").rank()), r"looks across rows"),
    (lambda: ROWS.group_by("k").top(2, "k", by="v", explode=True), r"would have 'k' twice"),
    (lambda: ROWS.top(2, by="v", explode=True, name="best"), r"no list to name"),
    (
        lambda: ROWS.with_columns(rank=1).top(2, by="v", ranks=True),
        r"called 'rank', as one of its columns is; rename it",
    ),
    (
        lambda: mr.read(A).window(windows.fixed(10), accumulation="discarding").top(2, by="v", explode=True),
        r"accumulation='discarding' has no meaning",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_a_wrong_ranking_is_refused_in_one_line(call: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert "_ranked" not in str(caught.value)


UNWINDOWED: list[tuple[str, Any]] = [
    ("ranked", lambda rows: rows.group_by("k").top(2, "v", by="x", explode=True)),
    (
        "ranked panes",
        lambda rows: (
            rows.group_by(odd=pl.col("v") % 2)
            .aggregate(n=aggregates.count(where="b"), t=aggregates.sum(pl.col("v") * 2, distinct=True))
            .top(1, by=["n", "t"], descending=[True, False], explode=True)
        ),
    ),
    (
        "leaders",
        lambda rows: (
            rows.group_by("k")
            .top(2, "v", by="x", explode=True)
            .group_by("v")
            .count(where=pl.col("rank") == 1)
        ),
    ),
]


@pytest.mark.parametrize("ranked", [made for _, made in UNWINDOWED], ids=[name for name, _ in UNWINDOWED])
def test_rankings_without_a_window_are_corrected_with_every_row_as_the_model_says(ranked: Any) -> None:
    held: list[Counter[Any]] = []
    for on in ("model", "engine"):
        script = Script(mr.Job("one", write(ranked(mr.read(A)), "analytics.one")), on=on)
        total: Counter[Any] = Counter()
        for at in range(12):
            script.events(reading(at, k="ab"[at % 2], v=at // 2 % 3, x=at * 7 % 5, b=at % 3 > 0))
            for row in script.panes():
                columns = [
                    value for name, value in row.items() if name in ("k", "v", "n", "t", "rank", "count")
                ]
                total[tuple(columns)] += 1 if row["op"] == "+" else -1
        held.append(+total)
    assert held[0] == held[1]
    assert held[0]
