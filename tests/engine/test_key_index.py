"""A few of very many keys are found without looking at all rows."""

import polars as pl
import pytest

from millrace.engine import state
from millrace.engine.key_index import KeyIndex
from millrace.engine.state import Layout, SlotState

ROWS = pl.DataFrame({"a": ["x", None, "z", "x", None], "b": [1, 2, 1, 1, 3], "value": range(5)})
LAYOUT = Layout(pl.col("value"), pl.col("value"), lambda frame: frame)


def test_all_rows_of_a_key_are_found_in_order_a_null_key_too() -> None:
    index = KeyIndex.of(ROWS, ["a", "b"])
    assert index.find(pl.DataFrame({"a": [None, "x", "w"], "b": [3, 1, 1]})).tolist() == [0, 3, 4]
    assert index.find(ROWS.select("a", "b").clear()).tolist() == []


def test_a_chunk_uses_an_index_where_rows_are_very_many_more_than_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state, "MIN_INDEXED_ROWS", 5)
    monkeypatch.setattr(state, "MIN_ROWS_PER_KEY", 3)
    [chunk] = SlotState().append("op", "rows", ROWS, LAYOUT).table("op", "rows").chunks
    assert chunk.rows_near(pl.DataFrame({"a": ["z"]}))["value"].to_list() == [2]
    assert chunk.rows_near(pl.DataFrame({"b": [1]}))["value"].to_list() == [0, 2, 3]
    assert chunk.rows_near(pl.DataFrame({"a": ["z", "x"]})).height == 5
    assert chunk.rows_near(pl.DataFrame()).height == 5


def test_an_index_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MIN_INDEXED_ROWS", 5)
    state.clear_cache()
    [chunk] = SlotState().append("op", "rows", ROWS, LAYOUT).table("op", "rows").chunks
    monkeypatch.setattr(state, "MIN_ROWS_PER_KEY", 1)
    first = chunk.rows_near(pl.DataFrame({"a": ["x"]}))
    monkeypatch.setattr(KeyIndex, "of", None)
    assert chunk.rows_near(pl.DataFrame({"a": ["x"]})).equals(first)
