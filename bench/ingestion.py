"""The cost of ingestion from a recording and from a broker, and the size of an event in the log."""

import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from millrace.ingest import Connector, ingest
from millrace.ingest.connectors.mqtt import Mqtt
from millrace.ingest.connectors.recording import Recording
from millrace.ingest.connectors.simulator.city import City, CityPlan
from millrace.ingest.pipeline import IngestCounts, StopSignal
from millrace.ingest.processors.hsl import Hsl
from millrace.log import open_log
from millrace.log.codecs.codec import encode
from millrace.transit.topics import POSITIONS

START = 1_772_431_200_000
_COMPRESSED_TOGETHER = 1_000
"""How many records are compressed together: about a batch of Kafka's."""


@dataclass(frozen=True)
class Ingested:
    """The figures of one source."""

    source: str
    messages: int
    messages_per_s: float
    cpu_us_per_message: float
    per_core: float
    """Messages per second of CPU time."""


@dataclass(frozen=True)
class Size:
    """The size of an event, in bytes."""

    codec: str
    plain: float
    compressed: float
    """A thousand together, with zstd."""
    embedded: float
    """On disk, in the embedded log."""


def make_messages(count: int) -> list[tuple[str, bytes]]:
    """Positions of a simulated city as HFP would send them."""
    return [_to_hfp(row) for row in make_positions(count).iter_rows(named=True)]


def make_positions(count: int) -> pl.DataFrame:
    """Events of a simulated city at its mean volume."""
    city = City(CityPlan(volume="mean"), start=START)
    parts: list[pl.DataFrame] = []
    while sum(map(len, parts)) < count:
        parts += [frame for _, frame in city.advance(START + 10_000 * (len(parts) + 1))]
    return pl.concat(parts).head(count)


def _to_hfp(row: dict[str, Any]) -> tuple[str, bytes]:
    operator, vehicle = map(int, row["vehicle_id"].split("/"))
    fields = {
        "desi": row["route"], "dir": str(row["direction"]), "oper": operator, "veh": vehicle,
        "tst": datetime.fromtimestamp(row["event_time"] / 1000, UTC)
        .isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "tsi": row["event_time"] // 1000, "spd": row["speed"], "hdg": row["heading"], "lat": row["latitude"],
        "long": row["longitude"],
        "acc": row["acceleration"], "dl": -(row["delay"] or 0), "odo": row["odometer"],
        "drst": int(bool(row["doors_open"])),
        "oday": row["trip_day"], "jrn": 1, "line": 1, "start": row["trip_start"], "loc": "GPS",
        "stop": int(row["stop"]) if row["stop"] else None, "route": row["route"], "occu": 0,
    }  # fmt: skip
    place = (
        f"{row['route']}/{row['direction']}/Headsign/{row['trip_start']}/{row['next_stop']}/5/60;24/19/75/80"
    )
    return f"/hfp/v2/journey/ongoing/vp/bus/{operator:04}/{vehicle:05}/{place}", json.dumps(
        {"VP": fields}
    ).encode()


def measure_sources(count: int) -> Iterator[Ingested]:
    """A recording, and mosquitto where it is installed, with the same number of messages."""
    sent = make_messages(count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.jsonl"
        path.write_bytes(
            b"".join(b'{"received":%d,"topic":"%s","payload":%s}\n' % (START, t.encode(), p) for t, p in sent)
        )
        _measure_connector("warm-up", Recording(path, speed="max"), min(count, _COMPRESSED_TOGETHER))
        yield _measure_connector("recording", Recording(path, speed="max"), count)
    if _find_mosquitto() is not None:
        with start_broker() as url:
            with Mqtt(url, client_id="bench", topics=Hsl.filters):
                pass  # from now on the broker keeps messages for it
            _publish(url, sent)
            yield _measure_connector("mqtt", Mqtt(url, client_id="bench"), count)


def _measure_connector(name: str, connector: Connector, count: int) -> Ingested:
    stop = StopSignal()

    def report(counts: IngestCounts) -> None:
        if counts.received >= count:
            stop.request()

    with tempfile.TemporaryDirectory() as folder:
        log = open_log(f"embedded:{folder}/log")
        wall, cpu = time.perf_counter(), time.process_time()
        ingest(connector, Hsl(), log, stop=stop, report=report)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        log.close()
    return Ingested(name, count, count / wall, cpu / count * 1e6, count / cpu)


def measure_sizes(count: int) -> Iterator[Size]:
    """The sizes with each codec."""
    rows = make_positions(count)
    for codec in ("binary", "json"):
        topic = replace(POSITIONS, codec=codec)
        values = encode(topic, rows).values
        blocks = [
            b"".join(values[at : at + _COMPRESSED_TOGETHER].to_pylist())
            for at in range(0, count, _COMPRESSED_TOGETHER)
        ]
        compressed = sum(len(pa.compress(block, codec="zstd", asbytes=True)) for block in blocks)
        yield Size(
            codec, sum(map(len, blocks)) / count, compressed / count, _size_on_disk(topic, rows) / count
        )


def _size_on_disk(topic: Any, rows: pl.DataFrame) -> int:
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(f"embedded:{folder}/log")
        log.ensure(topic)
        for part in rows.iter_slices(_COMPRESSED_TOGETHER):
            log.append(topic.name, encode(topic, part))
        log.close()
        return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


def _find_mosquitto() -> str | None:
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def start_broker() -> Iterator[str]:
    """Runs a mosquitto with unlimited queues during the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "mosquitto.conf"
        settings.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nlog_type none\n"
        )
        process = subprocess.Popen(
            [_find_mosquitto() or "", "-c", str(settings)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(1_000):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.01)
            yield f"mqtt://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _publish(url: str, sent: Sequence[tuple[str, bytes]]) -> None:
    from paho.mqtt import client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.connect("127.0.0.1", int(url.rpartition(":")[2]))
    client.loop_start()
    for at in range(0, len(sent), _COMPRESSED_TOGETHER):
        for pending in [
            client.publish(topic, payload, qos=1) for topic, payload in sent[at : at + _COMPRESSED_TOGETHER]
        ]:
            pending.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()
