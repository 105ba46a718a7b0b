"""Columns of messages that lie in memory as librdkafka lays them out; no broker is needed."""

import ctypes
import gc
import logging
import mmap
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from log.conftest import within
from millrace.errors import LogError
from millrace.log.kafka import librdkafka, messages
from millrace.log.kafka.consumers import ColumnConsumer, UnsupportedSetting
from millrace.log.kafka.messages import MESSAGE

Row = tuple[bytes | None, bytes | None]
some_bytes = st.none() | st.binary(max_size=40)
rows_of_messages = st.lists(st.tuples(some_bytes, some_bytes), min_size=1, max_size=30)


class FakeLibrary:
    """Messages in memory of our own: a struct each, and one response that holds keys and payloads."""

    is_known_version = True

    def __init__(self, rows: list[Row], *, order: list[int] | None = None, has_headers: int = 0) -> None:
        self.response = bytearray()
        self.structs = np.zeros(len(rows) * 2, MESSAGE)[::2]  # with something else in between
        self.asked: list[int] = []
        self.destroyed: list[int] = []
        end = bytes([has_headers])
        bounds = [
            (self._write(b"....", key), self._write(b"..", value), self._write(end, b""))
            for value, key in rows
        ]
        self.memory = ctypes.create_string_buffer(bytes(self.response) or b"\0")
        base = ctypes.addressof(self.memory)
        for number, ((value, key), (key_start, start, _)) in enumerate(zip(rows, bounds, strict=True)):
            self.structs[number] = (
                0,
                0 if value is None else base + start,
                len(value or b""),
                0 if key is None else base + key_start,
                len(key or b""),
                number,
                1_000 + number,
            )
        first = self.structs.__array_interface__["data"][0]
        addresses = first + 2 * MESSAGE.itemsize * np.arange(len(rows))
        self.addresses = addresses[order] if order is not None else addresses

    def _write(self, gap: bytes, content: bytes | None) -> int:
        self.response += gap
        start = len(self.response)
        self.response += content or b""
        return start

    def rd_kafka_message_timestamp(self, address: int, _type: object) -> int:
        self.asked.append(address)
        return 1_000 + (address - int(self.addresses.min())) // (2 * MESSAGE.itemsize)

    def rd_kafka_message_headers(self, address: int, _headers: object) -> int:
        self.asked.append(address)
        return 1

    def rd_kafka_message_errstr(self, address: int) -> bytes:
        return b"reason"

    def rd_kafka_message_destroy(self, address: int) -> None:
        self.destroyed.append(address)


def read(library: FakeLibrary) -> Any:
    events, kept, structs = messages.split_events(library, library.addresses)  # type: ignore[arg-type]
    assert not events
    return messages.to_records(library, kept, structs)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(some_bytes, some_bytes), min_size=1, max_size=30), st.randoms(use_true_random=False)
)
def test_keys_and_values_are_copied_wherever_they_are(rows: list[Row], source: Any) -> None:
    order = list(range(len(rows)))
    source.shuffle(order)
    records = read(FakeLibrary(rows, order=order))
    records.values.validate(full=True)
    records.keys.validate(full=True)
    assert records.values.to_pylist() == [rows[number][0] for number in order]
    assert records.keys.to_pylist() == [rows[number][1] for number in order]
    assert records.offsets.tolist() == order
    assert records.timestamps.tolist() == [1_000 + number for number in order]


def test_the_columns_outlive_the_messages() -> None:
    library = FakeLibrary([(b"value", b"key")] * 3)
    records = read(library)
    ctypes.memset(library.memory, 0, len(library.memory))
    library.structs["offset"] = 99
    library.structs["timestamp"] = 99
    assert records.values.to_pylist() == [b"value"] * 3
    assert records.keys.to_pylist() == [b"key"] * 3
    assert records.offsets.tolist() == [0, 1, 2]
    assert records.timestamps.tolist() == [1_000, 1_001, 1_002]


def test_times_that_are_elsewhere_are_asked_for_one_by_one() -> None:
    library = FakeLibrary([(b"v", None)] * 9)
    library.structs["timestamp"] = 7
    assert read(library).timestamps.tolist() == list(range(1_000, 1_009))
    assert len(library.asked) >= 9


def test_few_messages_are_asked_for_their_times_and_none_for_its_headers() -> None:
    library = FakeLibrary([(b"v" * 5, b"k")] * 200)
    read(library)
    assert len(library.asked) <= 4


def test_messages_with_something_behind_the_payload_are_asked_for_headers() -> None:
    library = FakeLibrary([(b"v" * 5, b"k")] * 50, has_headers=2)
    assert read(library).headers is None
    assert len(library.asked) >= 50


def test_messages_of_a_version_that_is_not_known_are_all_asked_for_headers() -> None:
    library = FakeLibrary([(b"v" * 5, b"k")] * 50)
    library.is_known_version = False
    assert read(library).headers is None
    assert len(library.asked) >= 50


def test_no_byte_is_read_beyond_the_page_in_which_a_payload_ends() -> None:
    """Reading one would end this process: the next page is not ours."""
    with mmap.mmap(-1, 2 * mmap.PAGESIZE) as pages:
        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        libc = ctypes.CDLL(None)
        libc.munmap.argtypes = libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        assert libc.mprotect(start + mmap.PAGESIZE, mmap.PAGESIZE, 0) == 0
        payloads = np.array([start + mmap.PAGESIZE - 10, start], np.int64)
        try:
            assert messages._find_headers(payloads, np.array([10, 4], np.int64)) == [0]
        finally:
            libc.mprotect(start + mmap.PAGESIZE, mmap.PAGESIZE, 3)


def test_errors_are_events_and_their_neighbours_records() -> None:
    library = FakeLibrary([(b"a", None), (b"b", None), (b"c", None)])
    library.structs["err"][1] = -191
    events, kept, structs = messages.split_events(library, library.addresses)  # type: ignore[arg-type]
    assert events == [messages.Event(-191, "reason", 1)]
    records = messages.to_records(library, kept, structs)  # type: ignore[arg-type]
    assert records.values.to_pylist() == [b"a", b"c"]


def test_more_than_two_gibibytes_are_refused() -> None:
    starts, lengths = np.array([8, 8], np.int64), np.array([1 << 30, (1 << 30) + 1], np.int64)
    with pytest.raises(LogError, match=r"2 GiB; read fewer"):
        messages._to_binary(starts, lengths)


def test_messages_are_returned_once_each() -> None:
    library = FakeLibrary([(b"a", None)] * 5)
    messages.destroy(library, library.addresses)  # type: ignore[arg-type]
    assert library.destroyed == library.addresses.tolist()


def test_a_library_without_a_function_is_not_called_directly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert librdkafka.find() is not None
    librdkafka.find.cache_clear()
    librdkafka.note_objects.cache_clear()
    monkeypatch.setitem(librdkafka._FUNCTIONS, "rd_kafka_of_tomorrow", (None, []))
    assert librdkafka.find() is None
    assert "an object for each record, which takes twice the CPU" in caplog.text
    assert "rd_kafka_of_tomorrow" in caplog.text
    librdkafka.find.cache_clear()


def test_a_consumer_that_nobody_closed_ends_when_it_is_collected() -> None:
    library = librdkafka.find()
    assert library is not None
    settings = {"bootstrap.servers": "localhost:1", "group.id": "g"}
    consumer = ColumnConsumer(library, settings, lambda _error: None)
    finalizer = consumer._finalizer
    assert finalizer.alive
    del consumer
    gc.collect()
    assert not finalizer.alive


def test_errors_of_a_client_arrive_while_messages_are_awaited() -> None:
    library = librdkafka.find()
    assert library is not None
    errors: list[KafkaError] = []
    settings = {"bootstrap.servers": "localhost:1", "group.id": "g"}
    consumer = ColumnConsumer(library, settings, errors.append)
    with within(20) as waiting:
        while waiting(not errors):
            assert consumer.consume(10, 0.1)[1] == []
    consumer.close()
    consumer.close()
    assert errors[0].code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    with pytest.raises(UnsupportedSetting, match="this-is-not-a-setting"):
        ColumnConsumer(library, {**settings, "this-is-not-a-setting": "1"}, errors.append)
