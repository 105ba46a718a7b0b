"""The wheel is all that a user needs: installed where nothing else is,
far from the repository, it shows the map.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.demo.running import QUICK, demo
from test_tutorial import follow_page

ROOT = Path(__file__).parents[3]
UV = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Python of an empty environment with the wheel and what it asks for, in the versions of the lock;
    more than a gigabyte, gone afterwards.
    """
    place = tmp_path_factory.mktemp("wheel")
    run("make", "--no-print-directory", "wheel", f"ARGS=-d {place / 'dist'}", cwd=ROOT)
    [wheel] = (place / "dist").glob("*.whl")
    versions = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    (place / "versions.txt").write_text("\n".join(versions))
    run(
        UV,
        "venv",
        "--quiet",
        "--no-python-downloads",
        "--python",
        sys.executable,
        str(place / "venv"),
        cwd=place,
    )
    python = place / "venv" / "bin" / "python"
    words = ("--quiet", "--python", str(python), "--constraint", str(place / "versions.txt"))
    run(UV, "pip", "install", *words, f"{wheel}[demo]", cwd=place)
    yield python
    shutil.rmtree(place, ignore_errors=True)


def run(*words: str, cwd: Path) -> str:
    ended = subprocess.run(words, cwd=cwd, capture_output=True, text=True, env=plain())
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def plain() -> dict[str, str]:
    """What a user's shell has, without what leads to this checkout."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHONPATH", "VIRTUAL_ENV", "MAKE", "MFLAGS"))
    }


def page(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.wheel
def test_the_wheel_alone_shows_the_map(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = run(str(environment), "-c", "import millrace; print(millrace.__file__)", cwd=tmp_path)
    assert not Path(home).is_relative_to(ROOT)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with demo(tmp_path / "demo", *QUICK, python=environment) as running:
        running.until_map()
        assert running.cells()
        status, html = page(running.port, "/")
        assert (status, "<html" in html) == (200, True)
        scripts = re.findall(r'src="((?:\./|/)?assets/[^"]+\.js)"', html)
        assert scripts
        assert page(running.port, "/" + scripts[0].lstrip("./"))[0] == 200
        assert running.ends() == 130


@pytest.mark.wheel
@pytest.mark.spark
def test_the_wheel_alone_shows_the_map_on_spark(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with demo(tmp_path / "demo", "--port", "0", python=environment) as running:
        running.until_map()
        assert running.cells()
        assert running.ends() == 130


@pytest.mark.wheel
def test_a_new_user_follows_the_tutorial_with_the_wheel_alone(environment: Path, tmp_path: Path) -> None:
    run(UV, "pip", "install", "--quiet", "--python", str(environment), "pytest", cwd=tmp_path)
    follow_page(tmp_path, environment.parent, plain())


@pytest.mark.wheel
def test_the_wheel_says_that_benchmarks_need_a_checkout(environment: Path, tmp_path: Path) -> None:
    command = [str(environment), "-m", "millrace.cli.main", "bench", "engine"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=plain())
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: millrace bench needs a checkout of millrace")
