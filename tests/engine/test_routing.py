"""Which slot holds a key, as stored state depends on it; and which results need an order."""

import itertools
from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import aggregates, windows
from millrace.engine.emitted_rows import asks_for_order
from millrace.engine.routing import partition_by_slot
from millrace.graph import Operation
from millrace.stream import Stream
from millrace.values import key_hash
from strategies import A, B


@dataclass(frozen=True)
class Word:
    word: str


def test_a_slot_holds_a_range_of_key_groups() -> None:
    counts = mr.read(mr.Topic("input.words", Word)).window(windows.fixed("1m")).group_by("word").count()
    [node] = mr.Job("counts", counts.write("analytics.words")).operator_ids
    words = pl.DataFrame({"word": [f"w{n}" for n in range(1_000)]})
    groups = [
        set(key_hash.key_groups(part, ["word"]).tolist()) for _, part in partition_by_slot(words, node, 5)
    ]
    in_order = sorted(groups, key=min)
    assert len(in_order) == 5
    assert all(max(before) < min(after) for before, after in itertools.pairwise(in_order))


def asks(stream: Stream) -> bool:
    assert isinstance(stream.node, Operation)
    return asks_for_order(stream.node)


def test_results_are_ordered_only_where_somebody_asks_for_it() -> None:
    rows = mr.read(A).group_by("k")
    windowed = mr.read(A).window(windows.fixed(10)).group_by("k")
    assert not asks(windowed.aggregate(n=aggregates.count(), s=aggregates.sum("v")))
    assert not asks(rows.join(mr.read(B).group_by("k"), ttl=5))
    assert asks(windowed.aggregate(n=aggregates.count(), last=aggregates.latest("v")))
    assert asks(rows.over(n=aggregates.count()))
