"""The page about the simulator does what it says."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millrace.cli.commands import app
from millrace.config import IngestSettings
from millrace.ingest import connector
from millrace.ingest.connectors.simulator import Simulator

PAGE = (Path(__file__).parents[4] / "docs" / "how-to" / "simulate.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_settings_are_ones_that_the_simulator_takes() -> None:
    (section,) = tomllib.loads(blocks("toml")[0])["ingest"].values()
    settings = IngestSettings.model_validate(section)
    made = connector(settings.connector, **settings.options)
    assert isinstance(made, Simulator)
    assert (made.plan.seed, made.plan.scale, made.plan.volume, settings.processor) == (7, 4, "peak", None)


def test_every_option_is_told() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    with pytest.raises(Exception, match=r"it takes (.*)") as caught:
        connector("simulator", nothing=1)
    assert documented == set(str(caught.value).rpartition("it takes ")[2].split(", "))


def test_the_commands_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as it is written, but for a minute of a small city."""
    monkeypatch.chdir(tmp_path)
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("millrace ")]
    assert len(lines) == 3
    for line in lines:
        words = line.split()[1:]
        done = CliRunner().invoke(app, [*words, "--scale", "0.02", "--speed", "max", "--duration", "1m"])
        assert done.exit_code == 0, done.output
    assert (tmp_path / "truth" / "routes.parquet").is_file()
