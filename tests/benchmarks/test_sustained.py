"""Jobs under events that keep flowing: the measurement runs, and says what it saw."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import sustained
from bench.city_flow import VOLUME


def test_a_few_seconds_are_sampled_and_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sustained, "EVERY", 1.0)
    monkeypatch.setattr(sustained, "SETTLES", 1.0)
    heard: list[float] = []
    found = sustained.bench(["vehicle-distribution"], on="local", scale=0.5, seconds=8, progress=heard.append)
    assert heard == sorted(heard)
    assert len(found.samples) == len(heard) >= 8
    assert 0.5 * VOLUME * 0.5 < found.events_per_s < 2 * VOLUME * 0.5
    assert found.batches > 8
    assert 0 <= found.behind_s_p50 <= found.behind_s_p99
    assert all(sample.memory["driver"] > 10 for sample in found.samples)
    assert found.cores["driver"] > 0
    assert found.cores["feeder"] > 0
    table, picture = sustained.write_samples(found, tmp_path)
    assert table.read_text().count("\n") == 1 + len(found.samples)
    assert ET.fromstring(picture.read_text()).tag.endswith("svg")
