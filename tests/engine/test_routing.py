"""Which slot holds a key: stored state depends on it."""

import itertools
from dataclasses import dataclass

import polars as pl

import millrace as mr
from millrace import windows
from millrace.engine.routing import partition_by_slot
from millrace.values import key_hash


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
