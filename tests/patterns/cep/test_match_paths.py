"""Which step took which row is worked out once for each sequence of masks."""

import numpy as np
import polars as pl
import pytest

import millrace as mr
from millrace.patterns.cep import match_paths
from millrace.patterns.cep.match_paths import MatchPaths
from millrace.patterns.cep.matcher import Matcher

SCHEMA = pl.Schema({"key": pl.String(), "kind": pl.String(), "event_time": pl.Int64()})
A, B, C = (pl.col("kind") == kind for kind in "abc")
STOP = mr.pattern("a", A).next("b", B).one_or_more().consecutive().next("c", C).within(10)


def find(paths: MatchPaths, kinds: str, *, is_overdue: bool = False) -> match_paths.PathsFromStart:
    masks = np.array([1 << "abc".index(kind) for kind in kinds])
    return paths.find(masks.tolist(), masks.tobytes(), 100, is_overdue=is_overdue)


def test_the_example_of_the_module_is_followed_once() -> None:
    paths = MatchPaths(Matcher(STOP, SCHEMA, ("key",)).runner)
    first = find(paths, "abbc")
    assert [(path.rows, path.steps) for path in first.matches] == [([0, 1, 2, 3], [0, 1, 1, 2])]
    assert not first.timeouts
    assert find(paths, "abbc") is first


def test_what_is_overdue_is_a_timeout_with_the_rows_up_to_then() -> None:
    paths = MatchPaths(Matcher(STOP, SCHEMA, ("key",)).runner)
    assert not find(paths, "abb").timeouts
    [timeout] = find(paths, "abb", is_overdue=True).timeouts
    assert (timeout.rows, timeout.steps) == ([0, 1, 2], [0, 1, 1])


def test_no_more_sequences_are_remembered_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_paths, "MAX_SEQUENCES", 2)
    paths = MatchPaths(Matcher(STOP, SCHEMA, ("key",)).runner)
    first = find(paths, "abc")
    for length in range(2, 6):
        find(paths, "a" + "b" * length + "c")
    again = find(paths, "abc")
    assert again is not first
    assert again == first
