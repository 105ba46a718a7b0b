"""`millrace bench`: in a checkout it finds the benchmarks from any folder;
without one it says what it needs.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.cli import main
from millrace.cli.commands import bench

COMMANDS = ("engine", "kafka", "ingest", "live", "latency", "sustained")


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_checkout_each_benchmark_asks_for_one_in_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    assert main.main(["bench", command]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: millrace bench needs a checkout of millrace")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_benchmark_needs_no_checkout(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    assert main.main(["bench", command, "--help"]) == 0
    assert f"millrace bench {command}" in capsys.readouterr().out


@pytest.mark.slow
def test_benchmarks_of_a_checkout_are_found_from_any_folder(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "millrace.cli.main", "bench", "latency", "fraud"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: fraud: there is no such job to measure; use five")


@pytest.mark.slow
def test_a_package_that_lies_in_no_checkout_asks_for_one(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "python3" / "site-packages"
    package.mkdir(parents=True)
    (package / "millrace").symlink_to(bench.CHECKOUT / "src" / "millrace")
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "millrace.cli.main", "bench", "engine"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: millrace bench needs a checkout of millrace")
