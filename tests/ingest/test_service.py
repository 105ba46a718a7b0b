"""Several sources at once: each is shown, and they stop together."""

import io
import json
from pathlib import Path

import pytest

from millrace.config import IngestSettings
from millrace.errors import ConfigError, InputError
from millrace.ingest.connectors.recording_frames import read_frames
from millrace.ingest.pipeline import StopSignal
from millrace.ingest.processors.hsl import Hsl
from millrace.ingest.service import ingest_all
from millrace.log import open_log
from millrace.transit import POSITIONS


def recording(path: Path, *, vehicles: int, gap: int = 0) -> Path:
    report = {"oper": 12, "tst": "2020-09-21T03:00:00.000Z", "lat": 60.2, "long": 24.9}
    lines = [
        {"received": 1_600_657_200_000 + n * gap, "topic": "t", "payload": {"VP": {**report, "veh": n}}}
        for n in range(vehicles)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def source(path: Path, **options: object) -> IngestSettings:
    return IngestSettings.model_validate(
        {"connector": "recording", "processor": "hsl", "path": str(path), "speed": "max", **options}
    )


def test_sources_run_side_by_side_into_one_log(tmp_path: Path) -> None:
    log, out = open_log(str(tmp_path / "log")), io.StringIO()
    sources = {
        name: source(recording(tmp_path / name, vehicles=count)) for name, count in (("a", 30), ("b", 50))
    }
    counts = ingest_all(sources, log, out=out, stop=StopSignal())
    assert {name: count.received for name, count in counts.items()} == {"a": 30, "b": 50}
    assert sum(log.end_offsets(POSITIONS.name).values()) == 80
    log.close()
    assert "a: done: 30 messages" in out.getvalue()


def test_one_that_fails_stops_the_others(tmp_path: Path) -> None:
    log, stop = open_log(str(tmp_path / "log")), StopSignal()
    endless = source(recording(tmp_path / "slow", vehicles=2, gap=1_000_000_000), speed=1)
    with pytest.raises(InputError, match="cannot be read"):
        ingest_all({"slow": endless, "missing": source(tmp_path / "none")}, log, out=io.StringIO(), stop=stop)
    log.close()
    assert stop.is_requested


def test_a_wrong_setting_names_its_section_before_anything_starts(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "log"))
    with pytest.raises(ConfigError, match=r"\[ingest\.b\]: speed='slow'"):
        ingest_all(
            {"a": source(tmp_path / "a"), "b": source(tmp_path / "b", speed="slow")},
            log,
            out=io.StringIO(),
            stop=StopSignal(),
        )
    assert log.list_topics() == []
    log.close()


@pytest.mark.parametrize(("settings", "message"), [
    (
        {"connector": "recording", "path": "r"},
        r"\[ingest\.a\]: connector 'recording' brings messages that need a processor",
    ),
    ({"connector": "simulator", "processor": "hsl"}, r"\[ingest\.a\]: processor = 'hsl' has nothing to do"),
])  # fmt: skip
def test_messages_need_a_processor_and_events_need_none(
    tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    log = open_log(str(tmp_path / "log"))
    with pytest.raises(ConfigError, match=message):
        ingest_all({"a": IngestSettings.model_validate(settings)}, log, out=io.StringIO(), stop=StopSignal())
    log.close()


def test_nothing_to_ingest_says_what_to_write(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "log"))
    with pytest.raises(ConfigError, match=r"add a section \[ingest\.NAME\]"):
        ingest_all({}, log, out=io.StringIO(), stop=StopSignal())
    log.close()


def test_a_recording_taken_whole_is_a_frame_for_each_topic(tmp_path: Path) -> None:
    frames = read_frames(recording(tmp_path / "r", vehicles=3), processor="hsl")
    assert frames.keys() == {topic.name for topic in Hsl().topics}
    assert frames.pop(POSITIONS.name)["vehicle_id"].to_list() == ["12/0", "12/1", "12/2"]
    assert all(frame.is_empty() for frame in frames.values())
