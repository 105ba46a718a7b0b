import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.errors import LogError
from millrace.log.contract import Headers, OutgoingRecords
from millrace.log.embedded import chunks

optional_bytes = st.none() | st.binary(max_size=12)
record = st.tuples(
    optional_bytes,
    optional_bytes,
    st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=4)), max_size=2).map(tuple),
)


def _batch(
    rows: list[tuple[bytes | None, bytes | None, Headers]], keyed: bool, headed: bool
) -> OutgoingRecords:
    keys = pa.array([row[0] for row in rows], pa.binary()) if keyed else None
    return OutgoingRecords(
        pa.array([row[1] for row in rows], pa.binary()), keys, [row[2] for row in rows] if headed else None
    )


@settings(deadline=None)
@given(
    st.data(),
    st.lists(
        st.tuples(st.lists(record, min_size=1, max_size=9), st.booleans(), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_any_range_of_chunks_merged_or_not_has_the_records_that_were_encoded(
    data: st.DataObject,
    appends: list[tuple[list[tuple[bytes | None, bytes | None, Headers]], bool, bool]],
    joined: bool,
) -> None:
    bodies, expected = [], []
    for now, (rows, keyed, headed) in enumerate(appends):
        bodies += [body for _, body in chunks.split_into_chunks(_batch(rows, keyed, headed), now)]
        expected += [
            (now, key if keyed else None, value, headers if headed else ()) for key, value, headers in rows
        ]
    if joined:
        bodies = [chunks.merge(bodies)]
    start = data.draw(st.integers(0, len(expected)))
    end = data.draw(st.integers(start, len(expected)))
    got = chunks.read_records(100, bodies, 100 + start, 100 + end)
    assert got.offsets.tolist() == list(range(100 + start, 100 + end))
    headers = got.headers if got.headers is not None else [()] * len(got)
    assert (
        list(zip(got.timestamps.tolist(), got.keys.to_pylist(), got.values.to_pylist(), headers, strict=True))
        == expected[start:end]
    )


def test_slices_and_all_kinds_of_text_are_encoded_alike() -> None:
    values = pa.array(["x", "a", None, "bc", "y"])
    kinds = (
        values.slice(1, 3),
        values.cast(pa.large_string()).slice(1, 3),
        pa.chunked_array([values.slice(1, 1), values.slice(2, 2)]),
    )
    for kind in kinds:
        ((count, body),) = chunks.split_into_chunks(OutgoingRecords(kind), 5)
        assert count == 3
        assert chunks.read_records(0, [body], 0, 3).values.to_pylist() == [b"a", None, b"bc"]


def test_a_null_that_hides_bytes_does_not_shift_its_neighbours() -> None:
    hidden = pa.Array.from_buffers(
        pa.binary(),
        3,
        [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 1, 3, 4], np.int32)), pa.py_buffer(b"aXXb")],
    )
    ((_, body),) = chunks.split_into_chunks(OutgoingRecords(hidden), 0)
    assert chunks.read_records(0, [body], 0, 3).values.to_pylist() == [b"a", None, b"b"]


def test_large_batches_are_cut_by_records_and_by_bytes() -> None:
    many = [
        count
        for count, _ in chunks.split_into_chunks(OutgoingRecords(pa.array([b""] * 20_000, pa.binary())), 0)
    ]
    assert many == [8192, 8192, 3616]
    big = [
        count
        for count, _ in chunks.split_into_chunks(
            OutgoingRecords(pa.array([b"x" * 400_000] * 5 + [b"y" * 3_000_000] + [b"z"], pa.binary())), 0
        )
    ]
    assert big == [2, 2, 1, 1, 1]


def test_a_chunk_of_a_newer_version_is_refused() -> None:
    ((_, body),) = chunks.split_into_chunks(OutgoingRecords(pa.array([b"a"])), 0)
    with pytest.raises(LogError, match="upgrade millrace"):
        chunks.read_records(0, [b"\x09" + body[1:]], 0, 1)
