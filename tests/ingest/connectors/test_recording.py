"""Recordings play back as they came, whatever the file contains."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.clocks import FakeClock
from millrace.errors import ConfigError, InputError
from millrace.ingest.connectors.recording import Recording
from millrace.ingest.contract import MessageBatch


def line(received: int, payload: Any = None) -> bytes:
    return json.dumps(
        {
            "received": received,
            "topic": f"t/{received}",
            "payload": {"n": received} if payload is None else payload,
        }
    ).encode()


def recording(folder: Path, *lines: bytes, name: str = "r.jsonl") -> Path:
    path = folder / name
    data = b"\n".join(lines) + b"\n"
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def polls(connector: Recording, *, limit: int = 1000, wait: int = 50) -> list[MessageBatch]:
    with connector:
        found: list[MessageBatch] = []
        while (batch := connector.poll(limit=limit, wait=wait)) is not None:
            found.append(batch)
    return found


def received(batches: list[MessageBatch]) -> list[int]:
    return [time for batch in batches for time in batch.received]


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_every_message_comes_in_order_with_topic_payload_and_line_number(tmp_path: Path, name: str) -> None:
    path = recording(tmp_path, line(100), line(200), line(150), name=name)
    (batch,) = polls(Recording(path, speed="max"))
    assert [(raw.topic, json.loads(raw.payload), raw.received, raw.origin) for raw in batch] == [
        ("t/100", {"n": 100}, 100, f"{path}:1"),
        ("t/200", {"n": 200}, 200, f"{path}:2"),
        ("t/150", {"n": 150}, 150, f"{path}:3"),
    ]


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    path = tmp_path / "odd-name"
    path.write_bytes(gzip.compress(line(1)))
    assert received(polls(Recording(path, speed=0))) == [1]


def test_original_timing_waits_as_long_as_the_messages_did(tmp_path: Path) -> None:
    #  recorded  0    40        1000 1010
    #  played    |----|----------|----|
    clock = FakeClock(5_000)
    path = recording(tmp_path, line(7_000), line(7_040), line(8_000), line(8_010))
    connector = Recording(path, clock=clock)
    came: list[tuple[int, int]] = []
    with connector:
        while (batch := connector.poll(limit=1000, wait=50)) is not None:
            came += [(clock.now() - 5_000, time) for time in batch.received]
    assert [time for _, time in came] == [7_000, 7_040, 8_000, 8_010]
    for at, time in came:
        assert time - 7_000 <= at <= time - 7_000 + 51, (
            "neither before its time nor later than the gathering takes"
        )


@pytest.mark.parametrize(("speed", "lasts"), [(1, 10_000), (10, 1_000), (0.5, 20_000), ("max", 0), (0, 0)])
def test_speed_divides_the_time_a_recording_takes(tmp_path: Path, speed: Any, lasts: int) -> None:
    clock = FakeClock()
    path = recording(tmp_path, *(line(time) for time in range(0, 10_001, 100)))
    assert len(received(polls(Recording(path, speed=speed, clock=clock)))) == 101
    assert sum(clock.waited) == pytest.approx(lasts, abs=51)


def test_no_poll_waits_longer_than_asked_though_the_next_message_is_an_hour_away(tmp_path: Path) -> None:
    clock = FakeClock()
    with Recording(recording(tmp_path, line(0), line(3_600_000)), clock=clock) as connector:
        sizes = [len(connector.poll(limit=10, wait=50) or ()) for _ in range(5)]
    assert sizes == [1, 0, 0, 0, 0]
    assert max(clock.waited) <= 50


def test_a_message_received_before_the_one_above_it_comes_right_after_it(tmp_path: Path) -> None:
    clock = FakeClock()
    path = recording(tmp_path, line(1_000), line(9_000), line(2_000), line(9_500))
    assert received(polls(Recording(path, clock=clock))) == [1_000, 9_000, 2_000, 9_500]
    assert sum(clock.waited) == pytest.approx(8_500, abs=51)


def test_a_batch_is_never_larger_than_the_limit(tmp_path: Path) -> None:
    batches = polls(
        Recording(recording(tmp_path, *(line(time) for time in range(1_000))), speed="max"), limit=300
    )
    assert [len(batch) for batch in batches] == [300, 300, 300, 100]


def test_retime_moves_the_first_message_to_now_and_keeps_all_distances(tmp_path: Path) -> None:
    path = recording(tmp_path, line(1_600_000_000_000), line(1_600_000_005_000))
    batches = polls(Recording(path, retime="now", clock=FakeClock(1_800_000_000_000)))
    assert received(batches) == [1_800_000_000_000, 1_800_000_005_000]
    assert {batch.shift for batch in batches} == {200_000_000_000}


def test_without_retime_nothing_is_shifted(tmp_path: Path) -> None:
    (batch,) = polls(Recording(recording(tmp_path, line(5)), clock=FakeClock()))
    assert (batch.shift, list(batch.received)) == (0, [5])


BAD = [
    b"no json",
    b"\xff\xfe\x00",
    b"[]",
    b"{}",
    b'{"received": "soon", "topic": "t", "payload": {}}',
    b'{"received": null, "topic": "t", "payload": {}}',
    b'{"received": 1e300, "topic": "t", "payload": {}}',
    b'{"received": -5, "topic": "t", "payload": {}}',
    b'{"received": 253402300800000, "topic": "t", "payload": {}}',
    b'{"received": 99999999999999999999999999, "topic": "t", "payload": {}}',
    b'{"received": 5, "topic": 5, "payload": {}}',
    b'{"received": 5, "topic": "t"}',
    b'{"received": 5, "topic": "t", "payload": {"n": }}',
    b'{"received": 5, "topic": "t", "payload": "\\ud800"}',
    b'{"received": 5, "topic": "t", "payload": ' + b"[" * 100_000,
    b'{"received": 5, "topic": "t", "payload": {}} trailing',
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_a_malformed_line_is_rejected_with_its_number_and_stops_nothing(tmp_path: Path, bad: bytes) -> None:
    path = recording(tmp_path, line(100), bad, line(200))
    batches = polls(Recording(path, speed="max"))
    assert received(batches) == [100, 200]
    (reject,) = [reject for batch in batches for reject in batch.rejects]
    assert (reject.reason, reject.raw.payload, reject.raw.origin) == ("malformed line", bad, f"{path}:2")
    assert reject.detail


def test_rejects_come_with_the_messages_around_them_not_at_the_end(tmp_path: Path) -> None:
    path = recording(tmp_path, b"bad", line(1), b"worse", line(2), line(3), b"worst")
    batches = polls(Recording(path, speed="max"), limit=1)
    assert [
        (list(batch.received), [reject.raw.payload for reject in batch.rejects]) for batch in batches
    ] == [
        ([1], [b"bad", b"worse"]),
        ([2], []),
        ([3], [b"worst"]),
    ]


def test_blank_lines_windows_line_ends_and_a_byte_order_mark_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + line(1) + b"\r\n\r\n   \n" + line(2))
    (batch,) = polls(Recording(path, speed="max"))
    assert (list(batch.received), list(batch.positions), list(batch.rejects)) == ([1, 2], [1, 4], [])


def test_a_payload_may_be_text_that_holds_the_message(tmp_path: Path) -> None:
    (batch,) = polls(Recording(recording(tmp_path, line(1, '{"VP": broken ä'), line(2, [1, 2])), speed="max"))
    assert list(batch.payloads) == ['{"VP": broken ä'.encode(), b"[1, 2]"]


def test_a_line_without_end_is_rejected_and_only_its_beginning_kept(tmp_path: Path) -> None:
    path = recording(tmp_path, line(1), b"x" * 5_000_000, line(2))
    batches = polls(Recording(path, speed="max"))
    assert received(batches) == [1, 2]
    (reject,) = [reject for batch in batches for reject in batch.rejects]
    assert len(reject.raw.payload) <= 1 << 20
    assert "longer than" in reject.detail


@pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz"])
def test_an_empty_recording_ends_at_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"") if name.endswith("gz") else b"")
    assert polls(Recording(path)) == []


def test_a_missing_file_is_said_on_opening(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"none\.jsonl cannot be read: No such file"),
        Recording(tmp_path / "none.jsonl"),
    ):
        pass


def test_a_folder_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directory"), Recording(tmp_path):
        pass


def test_a_file_that_only_pretends_to_be_gzipped_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(line(1))
    with pytest.raises(InputError, match="not gzipped"), Recording(path):
        pass


def broken(folder: Path, data: bytes) -> tuple[list[int], str]:
    path = folder / "r.jsonl.gz"
    path.write_bytes(data)
    times: list[int] = []

    def play() -> None:
        with Recording(path, speed="max") as connector:
            while (batch := connector.poll(limit=100, wait=50)) is not None:
                times.extend(batch.received)

    with pytest.raises(InputError) as caught:
        play()
    return times, str(caught.value)


def test_a_truncated_gzip_gives_all_that_can_be_read_and_then_an_error(tmp_path: Path) -> None:
    whole = gzip.compress(b"\n".join(line(time) for time in range(20_000)))
    times, message = broken(tmp_path, whole[: len(whole) // 2])
    assert times == list(range(len(times)))
    assert len(times) > 5_000
    assert f"cut short after line {len(times)}" in message


def test_a_damaged_gzip_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(b"\n".join(line(time) for time in range(20_000))))
    data[len(data) // 2 : len(data) // 2 + 40] = b"\0" * 40
    _, message = broken(tmp_path, bytes(data))
    assert "r.jsonl.gz is damaged" in message


@pytest.mark.parametrize("speed", [-1, "fast", float("nan"), float("inf"), None])
def test_an_impossible_speed_is_refused(speed: Any) -> None:
    with pytest.raises(ConfigError, match="is not a speed"):
        Recording("r", speed=speed)


@pytest.mark.parametrize("path", [5, "", None])
def test_a_path_that_names_no_file_is_refused(path: Any) -> None:
    with pytest.raises(ConfigError, match="is not a file name"):
        Recording(path)


def test_an_unknown_retime_is_refused() -> None:
    with pytest.raises(ConfigError, match="retime='tomorrow'"):
        Recording("r", retime="tomorrow")  # type: ignore[arg-type]  # what a settings file may say


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(0, 10**13).map(line),
            st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"")),
        ),
        max_size=30,
    ),
    st.integers(1, 7),
)
def test_every_line_is_read_rejected_or_blank(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], limit: int
) -> None:
    batches = polls(
        Recording(recording(tmp_path_factory.mktemp("r"), line(0), *lines), speed="max"), limit=limit
    )
    taken = sum(len(batch) + len(batch.rejects) for batch in batches)
    assert taken == 1 + sum(1 for each in lines if each and not each.isspace())


def test_a_loop_goes_on_where_it_ended_and_no_batch_is_of_two_rounds(tmp_path: Path) -> None:
    path = recording(tmp_path, line(1_000), line(1_500), line(1_200), line(3_000))
    with Recording(path, speed="max", loop=True) as connector:
        batches = [connector.poll(limit=3, wait=0) or MessageBatch() for _ in range(6)]
    assert [list(batch.received) for batch in batches] == [
        [1_000, 1_500, 1_200], [3_000],
        [4_000, 4_500, 4_200], [6_000],
        [7_000, 7_500, 7_200], [9_000],
    ]  # fmt: skip
    assert [batch.shift for batch in batches] == [0, 0, 3_000, 3_000, 6_000, 6_000]
    assert [raw.origin for raw in batches[2]] == [f"{path}:{number}" for number in (1, 2, 3)]


def test_a_loop_keeps_its_timing_over_the_seam(tmp_path: Path) -> None:
    clock = FakeClock()
    path = recording(tmp_path, line(0), line(500))
    times: list[int] = []
    with Recording(path, loop=True, retime="now", clock=clock) as connector:
        while len(times) < 6:
            batch = connector.poll(limit=10, wait=50)
            assert batch is not None
            assert all(clock.now() - 51 <= time <= clock.now() for time in batch.received)
            times += batch.received
    assert [time - times[0] for time in times] == [0, 500, 1_500, 2_000, 3_000, 3_500]


def test_a_loop_over_nothing_ends(tmp_path: Path) -> None:
    with Recording(recording(tmp_path, b"nonsense"), speed="max", loop=True) as connector:
        batch = connector.poll(limit=10, wait=0)
        assert batch is not None
        assert len(batch.rejects) == 1
        assert connector.poll(limit=10, wait=0) is None
