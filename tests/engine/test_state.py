"""State in chunks: immutable, written about as much as touched, found again from bytes."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from millrace.engine import state as state_module
from millrace.engine.state import Changes, Layout, SlotState

END = pl.col("_end")
SUMS = Layout(END, END, lambda frame: frame.group_by("key", "_end").agg(pl.col("n").sum()))


def rows(*items: tuple[str, int, int]) -> pl.DataFrame:
    return pl.DataFrame(list(items), schema={"key": pl.String, "_end": pl.Int64, "n": pl.Int64}, orient="row")


def total(state: SlotState) -> dict[tuple[str, int], int]:
    frames = state.table("op", "sums").between(-(2**62), 2**62)
    merged = SUMS.merge(pl.concat([rows(), *frames]))
    return {(key, end): n for key, end, n in merged.iter_rows()}


class Store:
    """Keeps what `Changes` say, and counts what is fetched."""

    def __init__(self) -> None:
        self.meta: bytes | None = None
        self.chunks: dict[int, bytes] = {}
        self.fetched = 0

    def save(self, changes: Changes) -> int:
        self.meta = changes.meta
        self.chunks.update(changes.put)
        for id in changes.delete:
            del self.chunks[id]
        return sum(map(len, changes.put.values()))

    def fetch(self, id: int) -> bytes:
        self.fetched += 1
        return self.chunks[id]

    def open(self) -> SlotState:
        return SlotState.open(self.meta, self.fetch)


items = st.tuples(st.sampled_from("abc"), st.integers(1, 5), st.integers(-9, 9))


@given(st.lists(st.tuples(st.lists(items, max_size=4), st.booleans()), max_size=40))
def test_what_was_appended_is_there_whatever_was_merged_and_reopened(
    batches: list[tuple[list[tuple[str, int, int]], bool]],
) -> None:
    store, state, expected = Store(), SlotState(), dict[tuple[str, int], int]()
    for batch, reopen in batches:
        before = state
        state = state.append("op", "sums", rows(*batch), SUMS)
        store.save(state.changes_since(before))
        if reopen:
            state = store.open()
        for key, end, n in batch:
            expected[key, end] = expected.get((key, end), 0) + n
        assert total(state) == expected
    assert set(store.chunks) == {chunk.id for table in state.tables.values() for chunk in table.chunks}


def test_a_thousand_batches_leave_few_chunks() -> None:
    state = SlotState()
    for n in range(1000):
        state = state.append("op", "sums", rows(("a", n % 3, 1)), SUMS)
    assert len(state.table("op", "sums").chunks) <= 4 * state_module.MERGE_FACTOR
    assert sum(total(state).values()) == 1000


def test_a_batch_writes_about_what_it_touched() -> None:
    store = Store()
    state = SlotState().append("op", "sums", rows(*[(f"key-{n}", 1, n) for n in range(50_000)]), SUMS)
    whole = store.save(state.changes_since(SlotState()))
    written = []
    for n in range(7):
        before = state
        state = state.append("op", "sums", rows((f"key-{n}", 1, 1)), SUMS)
        written.append(store.save(state.changes_since(before)))
    assert max(written[:-1]) < whole / 100


def test_chunks_that_no_open_window_needs_are_dropped() -> None:
    state = (
        SlotState()
        .append("op", "sums", rows(("a", 10, 1)), SUMS)
        .append("op", "sums", rows(("a", 20, 1)), SUMS)
    )
    later = state.expire("op", "sums", 10)
    assert total(later) == {("a", 20): 1}
    assert later.changes_since(state).delete == [0]
    assert total(state) == {("a", 10): 1, ("a", 20): 1}


def test_only_chunks_that_may_matter_are_fetched() -> None:
    store = Store()
    state = (
        SlotState()
        .append("op", "sums", rows(("far", 10, 1)), SUMS)
        .append("op", "sums", rows(("near", 20, 1)), SUMS)
    )
    store.save(state.changes_since(SlotState()))
    state_module.clear_cache()
    found = store.open().table("op", "sums").between(15, 25)
    assert [frame["key"].to_list() for frame in found] == [["near"]]
    assert store.fetched == 1


def test_a_chunk_decoded_before_is_not_fetched_again() -> None:
    store = Store()
    state = SlotState().append("op", "sums", rows(("once", 10, 1)), SUMS)
    store.save(state.changes_since(SlotState()))
    assert total(store.open()) == {("once", 10): 1}
    assert store.fetched == 0


def test_what_belongs_to_operators_that_are_gone_goes() -> None:
    state = (
        SlotState()
        .append("job/a", "sums", rows(("x", 1, 1)), SUMS)
        .append("job/b", "sums", rows(("x", 1, 1)), SUMS)
    )
    state = state.with_values("job/a", 1).with_values("job/b", 2)
    left = state.only_operators({"job/b"})
    assert list(left.tables) == ["job/b:sums"]
    assert left.values == {"job/b": 2}
