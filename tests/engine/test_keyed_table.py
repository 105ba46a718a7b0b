"""Of each key the newest version counts, until it is deleted, or nothing of it matters any more."""

import polars as pl
import pytest

from millrace.durations import END_OF_STREAM
from millrace.engine.keyed_table import KeyedTable
from millrace.engine.state import MERGE_FACTOR, SlotState

COLUMNS = {"key": pl.String, "_due": pl.Int64, "_until": pl.Int64, "value": pl.Int64, "_seq": pl.Int64}
TABLE = KeyedTable(
    "job/match-1", "kept", ["key"], pl.Schema(COLUMNS).to_frame(), value="value", due="_due", until="_until"
)


def write(state: SlotState, version: int, *rows: tuple[str | None, int, int, int | None]) -> SlotState:
    frame = pl.DataFrame([(*row, version) for row in rows], schema=COLUMNS, orient="row")
    return TABLE.append(state, frame, since=0)


def keys(*names: str | None) -> pl.DataFrame:
    return pl.DataFrame({"key": list(names)}, schema={"key": pl.String})


def test_the_newest_version_of_each_key_is_read_a_null_key_too() -> None:
    state = write(SlotState(), 1, ("a", 90, 90, 1), (None, 90, 90, 5))
    state = write(state, 2, ("a", 90, 90, 2), ("b", 90, 90, 3))
    assert sorted(TABLE.read(state, keys("a", None))["value"]) == [2, 5]
    assert sorted(TABLE.read_all(state)["value"]) == [2, 3, 5]


def test_a_key_that_was_deleted_does_not_come_back() -> None:
    state = write(SlotState(), 1, ("a", 60, 60, 1))
    state = write(state, 2, ("a", END_OF_STREAM, 60, None))
    assert TABLE.read(state, keys("a")).is_empty()


def test_keys_are_read_when_time_has_come_for_them() -> None:
    state = write(SlotState(), 1, ("a", 30, 90, 1), ("b", 60, 90, 2), ("c", 10, 20, 3))
    assert TABLE.read_due(state, keys(), since=25, until=30)["key"].to_list() == ["a"]
    assert sorted(TABLE.read_due(state, keys("b"), since=25, until=30)["key"]) == ["a", "b"]


def test_merged_chunks_hold_the_newest_versions_and_nothing_that_has_expired() -> None:
    state = SlotState()
    for version in range(MERGE_FACTOR):
        state = TABLE.append(
            state,
            pl.DataFrame(
                [("a", 90, 90, version, version), (f"old{version}", 5, 5, 1, version)],
                schema=COLUMNS,
                orient="row",
            ),
            since=10,
        )
    [chunk] = state.table("job/match-1", "kept").chunks
    assert chunk.frame.select("key", "value").rows() == [("a", MERGE_FACTOR - 1)]
    assert not TABLE.expire(state, 90).table("job/match-1", "kept").chunks


@pytest.mark.parametrize("has_lists", [False, True])
def test_a_version_may_be_several_rows(has_lists: bool) -> None:
    table = KeyedTable("job/match-1", "kept", ["key"], pl.Schema(COLUMNS).to_frame(), has_lists=has_lists)
    state = SlotState()
    for version in (1, 2):
        rows = [("a", 90, 90, value, version) for value in (10 * version, 10 * version + 1)]
        state = table.append(state, pl.DataFrame(rows, schema=COLUMNS, orient="row"))
    assert table.read(state, keys("a"))["value"].to_list() == ([20, 21] if has_lists else [21])
