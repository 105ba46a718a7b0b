"""Rows are sorted by key and time without being moved, whatever the keys are."""

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from millrace.patterns.cep.key_order import NumberedKeys, ends_of_keys, join_ranges, sort_by_key_and_time


def test_the_example_of_the_module() -> None:
    rows = pl.DataFrame({"key": ["b", "a", "b", "a"]})
    numbered = NumberedKeys.of(rows, ["key"])
    order = sort_by_key_and_time(numbered.numbers, np.array([10, 11, 12, 12]))
    assert order.tolist() in ([1, 3, 0, 2], [0, 2, 1, 3])


def test_keys_of_other_rows_get_the_same_numbers_and_unknown_ones_new_numbers() -> None:
    numbered = NumberedKeys.of(pl.DataFrame({"a": ["x", None, "x"], "b": [1, 2, 1]}), ["a", "b"])
    assert numbered.numbers[0] == numbered.numbers[2] != numbered.numbers[1]
    others = pl.DataFrame({"a": [None, "z", "x", "z"], "b": [2, 1, 1, 1]})
    found = numbered.number_others(others)
    assert found[0] == numbered.numbers[1]
    assert found[2] == numbered.numbers[0]
    assert found[1] == found[3] == len(numbered.keys)


def test_without_key_columns_all_rows_have_one_key() -> None:
    numbered = NumberedKeys.of(pl.DataFrame({"a": [1, 2]}), [])
    assert numbered.numbers.tolist() == [0, 0]
    assert numbered.number_others(pl.DataFrame({"a": [3]})).tolist() == [0]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from([0, 1, 2, 1 << 61]), st.integers(0, 2), st.integers(0, 2)
        )
    )
)
def test_rows_are_in_order_of_key_time_ties_and_place(rows: list[tuple[int, int, int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    order = sort_by_key_and_time(columns[0], columns[1], (columns[2], columns[3]))
    assert order.tolist() == sorted(range(len(rows)), key=lambda place: (*rows[place], place))
    keys = columns[0][order]
    assert ends_of_keys(keys).tolist() == [
        max(place + 1 for place in range(len(keys)) if keys[place] == key) for key in keys
    ]


def test_ranges_are_joined() -> None:
    assert join_ranges(np.array([3, 7]), np.array([2, 3])).tolist() == [3, 4, 7, 8, 9]
