"""Measuring ingestion: what is measured is real, and written whole."""

import json

import pytest

from bench.ingestion import make_messages, make_positions, measure_sizes, measure_sources
from millrace.ingest import MessageBatch, processor

pytestmark = pytest.mark.slow


def test_simulated_messages_are_ones_that_the_processor_understands_as_they_were() -> None:
    messages, made = make_messages(500), make_positions(500)
    done = processor("hsl").process_many(
        MessageBatch([t for t, _ in messages], [p for _, p in messages], [0] * 500, range(500), "bench")
    )
    assert not done.rejects
    ((_, rows),) = done.rows
    same = [
        "vehicle_id",
        "event_time",
        "latitude",
        "longitude",
        "speed",
        "route",
        "direction",
        "stop",
        "next_stop",
    ]
    assert rows.select(same).equals(made.select(same))
    assert 300 < len(json.dumps(json.loads(messages[0][1]))) < 500


def test_binary_is_smaller_than_json_and_both_shrink() -> None:
    binary, text = measure_sizes(2_000)
    assert (binary.codec, text.codec) == ("binary", "json")
    assert binary.compressed < binary.plain < text.plain
    assert text.compressed < text.plain


@pytest.mark.mqtt
def test_both_sources_are_measured() -> None:
    found = list(measure_sources(2_000))
    assert [(one.source, one.messages) for one in found] == [("recording", 2_000), ("mqtt", 2_000)]
    assert all(one.cpu_us_per_message > 0 for one in found)
