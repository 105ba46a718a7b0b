"""A recording of a real broker plays back byte for byte."""

import io
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.connectors.mqtt.mosquitto import Mosquitto, eventually
from millrace.errors import InputError
from millrace.ingest.connectors.mqtt import Mqtt
from millrace.ingest.connectors.recording import Recording
from millrace.ingest.contract import MessageBatch, RawMessage
from millrace.ingest.pipeline import StopSignal
from millrace.ingest.progress import IngestProgress
from millrace.ingest.record import encode_line, record

PAYLOADS = [
    b'{"a": 1}',
    b"[1, 2]",
    b'"text"',
    b"5",
    b"",
    b"{",
    b'{"a":\n1}',
    b"plain \xc3\xa4",
    b"\xff\x00\xfe",
    b" {} ",
    b"{\xff}",
]


def played(path: Path) -> list[RawMessage]:
    with Recording(path, speed="max") as recording:
        batches: list[MessageBatch] = []
        while (batch := recording.poll(limit=1_000, wait=0)) is not None:
            assert not batch.rejects
            batches.append(batch)
    return [raw for batch in batches for raw in batch]


@given(
    st.lists(
        st.one_of(st.binary(max_size=30), st.text(max_size=20).map(str.encode), st.sampled_from(PAYLOADS)),
        min_size=1,
        max_size=5,
    )
)
def test_any_payload_comes_back_byte_for_byte(payloads: list[bytes]) -> None:
    data = b"".join(encode_line(RawMessage("t/ä", payload, 5)) for payload in payloads)
    path = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path("/tmp")
    file = path / f"millrace-{id(payloads)}.jsonl"
    file.write_bytes(data)
    try:
        assert [(raw.topic, raw.payload) for raw in played(file)] == [
            ("t/ä", payload) for payload in payloads
        ]
    finally:
        file.unlink()


@pytest.mark.mqtt
@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_what_a_broker_sends_is_recorded_and_plays_back(broker: Mosquitto, tmp_path: Path, name: str) -> None:
    connector = Mqtt(broker.url, topics="t/#", client_id="recorder")
    with connector:  # the session is there before anything is said
        pass
    broker.publish([(f"t/{n}", payload) for n, payload in enumerate(PAYLOADS)])
    counts = record(
        connector,
        tmp_path / name,
        stop=StopSignal(),
        progress=IngestProgress("r", io.StringIO()),
        messages=len(PAYLOADS),
    )
    assert counts.received == len(PAYLOADS)
    raws = played(tmp_path / name)
    assert [(raw.topic, raw.payload) for raw in raws] == [
        (f"t/{n}", payload) for n, payload in enumerate(PAYLOADS)
    ]
    with pytest.raises(InputError, match="exists already"):
        record(connector, tmp_path / name, stop=StopSignal(), progress=IngestProgress("r", io.StringIO()))


@pytest.mark.mqtt
def test_ctrl_c_ends_a_recording_that_can_be_read(broker: Mosquitto, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    process = subprocess.Popen(
        [
            str(Path(sys.executable).with_name("millrace")),
            "record",
            broker.url,
            str(path),
            "--topic",
            "t/#",
            "--client-id",
            "recorder",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: "as recorder " in (broker.folder / "mosquitto.log").read_text(), "it is connected")

    def recorded() -> bool:
        broker.publish([("t/1", b"{}")])
        return path.stat().st_size > 30

    eventually(recorded, "something is on disk")
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 130, stderr
    assert "stopped: " in stderr
    assert {raw.payload for raw in played(path)} == {b"{}"}
