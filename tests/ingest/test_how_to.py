"""The how-to page does what it says."""

import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from millrace.config import IngestSettings
from millrace.ingest import MessageBatch, connector, processor
from millrace.ingest.connectors.files import Files
from millrace.ingest.connectors.mqtt import Mqtt
from millrace.ingest.connectors.recording import Recording

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "ingest.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("block", "kind"), [(0, Recording), (1, Files), (2, Mqtt)])
def test_the_settings_are_ones_that_the_connector_takes(
    block: int, kind: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.py").write_text(blocks("python")[0])
    (section,) = tomllib.loads(blocks("toml")[block])["ingest"].values()
    settings = IngestSettings.model_validate(section)
    assert isinstance(connector(settings.connector, **settings.options), kind)
    assert settings.processor is None or processor(settings.processor).topics


def test_the_line_is_one_that_the_processor_understands(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(blocks("json")[0])
    with Recording(path, speed="max") as recording:
        batch = recording.poll(limit=10, wait=0)
    assert batch is not None
    assert [len(rows) for _, rows in processor("hsl").process_many(batch).rows] == [1]


def test_the_processor_of_ones_own_works(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("how_to")
    monkeypatch.setitem(sys.modules, "how_to", module)
    exec(blocks("python")[0], module.__dict__)
    messages: list[Any] = [
        {"kind": "reading", "at": 5, "celsius": 20.5},
        {"kind": "hello"},
        {"kind": "reading", "at": 6, "celsius": -300},
        {"kind": "reading", "at": 7},
    ]
    payloads = [json.dumps(message).encode() for message in messages]
    done = module.Sensors().process_many(MessageBatch(["cellar"] * 4, payloads, [9] * 4, range(1, 5), "line"))
    assert [rows.rows() for _, rows in done.rows] == [[("cellar", 20.5, 5, 9)]]
    assert done.skipped.total() == 1
    assert {(reject.raw.origin, reject.reason) for reject in done.rejects} == {
        ("line:3", "impossible temperature"),
        ("line:4", "processor failed"),
    }
