"""Obstacles are reported before anything is started, in one line and with the remedy."""

import importlib.util
import socket
from pathlib import Path

import pytest

from millrace.cli import main
from millrace.serve import pages

Capture = pytest.CaptureFixture[str]


def refusal(capsys: Capture, folder: Path, *words: str) -> str:
    """The one line that a demo says which does not start."""
    code = main.main(["demo", "--folder", str(folder), *words])
    stderr = capsys.readouterr()
    assert (code, stderr.out) == (1, "")
    assert len(stderr.err.splitlines()) == 1
    assert not (folder / "local" / "log").exists()
    return stderr.err


def test_a_port_in_use(tmp_path: Path, capsys: Capture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        stderr = refusal(capsys, tmp_path / "demo", "--on", "local", "--no-browser", "--port", str(port))
    assert f"port {port} cannot be used for the map (Address already in use)" in stderr
    assert "choose another: --port" in stderr


def test_without_java_there_is_another_way(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    stderr = refusal(capsys, tmp_path / "demo", "--no-browser")
    assert "Spark needs Java" in stderr
    assert stderr.rstrip().endswith("or use --on local, which needs no Java")


def test_a_java_that_is_too_old(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "is 11.0.2" in refusal(capsys, tmp_path / "demo", "--no-browser")


def test_a_package_that_is_not_installed(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "uvicorn" else found(name, package),
    )
    stderr = refusal(capsys, tmp_path / "demo", "--on", "local", "--no-browser")
    assert "the demo needs uvicorn, not installed here; run: pip install 'millrace-streams[demo]'" in stderr


def test_a_page_that_is_not_built(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "built_pages", lambda: None)
    assert "run: make web" in refusal(capsys, tmp_path / "demo", "--on", "local")


def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").touch()
    stderr = refusal(capsys, tmp_path / "file", "--on", "local", "--no-browser")
    assert (
        f"the demo cannot write to its folder {tmp_path / 'file' / 'local'} (Not a directory); name "
        "another: --folder DIR"
    ) in stderr
