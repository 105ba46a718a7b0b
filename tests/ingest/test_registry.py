"""Connectors and processors are found by name, and their options checked."""

from importlib import metadata
from pathlib import Path

import pytest

from millrace.errors import ConfigError
from millrace.ingest import connector, processor
from millrace.ingest.processors.hsl import Hsl
from millrace.ingest.recording import Recording


def test_millraces_own_are_found_by_name() -> None:
    made = connector("recording", path="r.jsonl", speed="max", retime="now")
    assert isinstance(made, Recording)
    assert (made.path, made.speed, made.retime) == (Path("r.jsonl"), 0.0, "now")
    assert isinstance(processor("hsl"), Hsl)


@pytest.mark.parametrize(("name", "options", "told"), [
    ("recrding", {}, "there is no connector 'recrding'; did you mean 'recording'"),
    ("recording", {"path": "r", "sped": 2}, "no option 'sped'; did you mean 'speed'? it takes path, speed, retime"),
    ("recording", {}, "needs the option 'path'"),
    ("recording", {"path": "r", "speed": "slow"}, "speed='slow' is no speed"),
    ("recording", {"path": "r", "clock": 5}, "no option 'clock'"),
])  # fmt: skip
def test_a_wrong_name_or_option_is_an_error_that_says_what_is_allowed(name: str, options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connector(name, **options)
    assert told in str(caught.value)


def test_installed_packages_may_offer_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("theirs", "millrace.ingest.processors.hsl:Hsl", "millrace.processors")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == point.group else [])
    assert isinstance(processor("theirs"), Hsl)


def test_one_that_cannot_be_loaded_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("broken", "no.such.module:Thing", "millrace.processors")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    with pytest.raises(ConfigError, match=r"'broken' .* cannot be loaded: No module named 'no'"):
        processor("broken")
