"""Connectors and processors are found by name, and their options checked."""

from importlib import metadata
from pathlib import Path

import pytest

from millrace.errors import ConfigError
from millrace.ingest import MessageBatch, connector, processor
from millrace.ingest.connectors.recording import Recording
from millrace.ingest.processors.hsl import Hsl


def test_millraces_own_are_found_by_name() -> None:
    made = connector("recording", path="r.jsonl", speed="max", retime="now")
    assert isinstance(made, Recording)
    assert (made.path, made.speed, made.retime) == (Path("r.jsonl"), 0.0, "now")
    assert isinstance(processor("hsl"), Hsl)


@pytest.mark.parametrize(("name", "options", "message"), [
    ("recrding", {}, "there is no connector 'recrding'; did you mean 'recording'"),
    (
        "recording", {"path": "r", "sped": 2},
        "no option 'sped'; did you mean 'speed'? it takes path, speed, retime",
    ),
    ("recording", {}, "needs the option 'path'"),
    ("recording", {"path": "r", "speed": "slow"}, "speed='slow' is not a speed"),
    ("recording", {"path": "r", "clock": 5}, "no option 'clock'"),
])  # fmt: skip
def test_a_wrong_name_or_option_is_an_error_that_says_what_is_allowed(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        connector(name, **options)
    assert message in str(caught.value)


def test_a_package_that_is_merely_installed_brings_a_processor_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "buses_of_berne.py").write_text(
        "from millrace.ingest import Event, MessageProcessor\nfrom millrace.transit import POSITIONS\nclass "
        "Berne(MessageProcessor):\n    topics = (POSITIONS,)\n    filters = ('berne/+/position',)\n    def "
        "process(self, raw):\n        return Event(POSITIONS, 5, {'vehicle_id': raw.payload.decode(), "
        "'operator': 'b', 'latitude': 46.9, 'longitude': 7.4})\n"
    )
    package = tmp_path / "buses_of_berne-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: buses-of-berne\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[millrace.processors]\nberne = buses_of_berne:Berne\n")
    monkeypatch.syspath_prepend(tmp_path)
    theirs = processor("berne")
    ((_, rows),) = theirs.process_many(MessageBatch(["t"], [b"7"], [9], [1], "file")).rows
    assert (rows["vehicle_id"].to_list(), theirs.filters) == (["7"], ("berne/+/position",))
    with pytest.raises(ConfigError, match="there are berne, gtfs-rt, hsl"):
        processor("bern-line-9")


def test_one_that_cannot_be_loaded_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("broken", "no.such.module:Thing", "millrace.processors")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    with pytest.raises(ConfigError, match=r"'broken' .* cannot be loaded: No module named 'no'"):
        processor("broken")
