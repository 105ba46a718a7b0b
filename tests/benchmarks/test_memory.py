"""Memory over a simulated day: the measurement runs, and says what it saw."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import memory
from bench.memory import events, memory_growth, simulate, write_samples


def test_a_few_simulated_minutes_are_sampled_and_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "RATE", 20)
    monkeypatch.setattr(memory, "events", lambda minutes: events(minutes, rate=20))
    samples = simulate(0.1, "local", tmp_path)
    assert len(samples) == 6
    assert all(parts["driver"] > 10 for _, parts in samples)
    write_samples(samples, "local", tmp_path / "out")
    assert (tmp_path / "out" / "memory-local.csv").read_text().count("\n") == 7
    assert ET.fromstring((tmp_path / "out" / "memory-local.svg").read_text()).tag.endswith("svg")


def test_growth_compares_the_end_of_the_day_with_its_second_quarter() -> None:
    flat = [(hour / 10, {"driver": 100.0 if hour > 5 else 20.0 * hour}) for hour in range(1, 41)]
    assert memory_growth(flat) == 0
    rising = [(hour / 10, {"driver": 100.0 + hour}) for hour in range(1, 41)]
    assert memory_growth(rising) > 0.1


def test_vehicles_rest_so_that_sessions_end() -> None:
    frames = list(events(70, rate=50))
    assert 0.99 < sum(frame.height for frame in frames) / (70 * 60 * 50) < 1.01
    first = frames[0]["key"].unique()
    assert len(first) > 100
    quiet = [vehicle for vehicle in first if vehicle not in set(frames[65]["key"])]
    assert quiet
    assert all(frame["ingestion_time"].is_sorted() for frame in frames)
