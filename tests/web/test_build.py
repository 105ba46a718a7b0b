"""The page is built when it must be, from the lock alone; if it cannot be built, an error explains why."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from web.chromium import build_module

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    return build_module()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources of the page alone, as a clone has them."""
    shutil.copytree(
        WEB, tmp_path / "web", ignore=shutil.ignore_patterns("node_modules", ".node", "__pycache__")
    )
    return tmp_path / "web"


def run(copy: Path, path: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(copy / "build.py")]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment, "PATH": path}, timeout=60
    )


def test_a_copy_of_the_sources_has_the_same_fingerprint(build: ModuleType, copy: Path) -> None:
    assert build.fingerprint(copy) == build.fingerprint()


@pytest.mark.parametrize("name", ["src/main.ts", "package-lock.json", "basemap/region.json", "index.html"])
def test_a_change_of_any_source_makes_the_page_stale(
    build: ModuleType, copy: Path, tmp_path: Path, name: str
) -> None:
    page = tmp_path / "page"
    page.mkdir()
    assert not build.is_fresh(copy, page), "there is none"
    (page / "index.html").touch()
    (page / build.STAMP).write_text(build.fingerprint(copy) + "\n")
    assert build.is_fresh(copy, page)
    with (copy / name).open("a") as source:
        source.write("\n")
    assert not build.is_fresh(copy, page)


def test_what_is_no_source_changes_nothing(build: ModuleType, copy: Path) -> None:
    before = build.fingerprint(copy)
    (copy / "node_modules").mkdir()
    for name in ("node_modules/package.js", "README.md", "test/more.test.ts", "build.py"):
        (copy / name).write_text("changed")
    assert build.fingerprint(copy) == before


def test_without_node_and_without_a_way_to_fetch_it_the_message_says_what_to_install(
    copy: Path, tmp_path: Path
) -> None:
    unreachable = {
        "UV_DEFAULT_INDEX": "http://127.0.0.1:9/",
        "UV_OFFLINE": "1",
        "UV_NO_CACHE": "1",
        "UV_NO_CONFIG": "1",
        "UV_FIND_LINKS": "",
    }
    (tmp_path / "empty").mkdir()
    for tool in ("uv",):
        if found := shutil.which(tool) or shutil.which(tool, path=ROOT / ".uv" / "bin"):
            (tmp_path / "empty" / tool).symlink_to(found)
    answer = run(copy, str(tmp_path / "empty"), **unreachable)
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    assert "Node 20.19 or newer, which is not on PATH" in answer.stderr
    assert "install Node with npm, or build once where there is a network" in answer.stderr


@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm here to fail")
def test_without_a_network_the_message_says_so(copy: Path, tmp_path: Path) -> None:
    nowhere = {
        "npm_config_registry": "http://127.0.0.1:9/",
        "npm_config_cache": str(tmp_path / "cache"),
        "npm_config_fetch_retries": "0",
    }
    answer = run(copy, os.environ["PATH"], **nowhere)
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    assert "found no network, so the page's packages are missing" in answer.stderr
    assert "build once where there is a network" in answer.stderr


def test_the_lock_has_a_hash_of_everything_and_no_address() -> None:
    text = (WEB / "package-lock.json").read_text()
    packages = {name: each for name, each in json.loads(text)["packages"].items() if name}
    assert len(packages) > 50
    assert [name for name, each in packages.items() if "integrity" not in each] == []
    assert [name for name, each in packages.items() if "resolved" in each] == []


def test_the_versions_that_are_asked_for_are_exact() -> None:
    asked = json.loads((WEB / "package.json").read_text())
    versions = asked["dependencies"] | asked["devDependencies"] | asked["overrides"]
    assert [name for name, version in versions.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []


@pytest.mark.parametrize(
    "path", sorted((WEB / "src").glob("*")) + sorted((WEB / "test").glob("*")), ids=lambda path: path.name
)
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    assert path.read_text().count("\n") <= 400


@pytest.mark.web
def test_the_wheel_carries_the_page_and_not_its_sources(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("millrace_streams-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert "millrace/serve/static/index.html" in names
    assert any(re.fullmatch(r"millrace/serve/static/assets/index-\S+\.js", name) for name in names)
    assert "millrace/serve/static/NOTICE.txt" in names
    assert [name for name in names if name.endswith((".ts", "package.json")) or name.startswith("web/")] == []


@pytest.mark.web
def test_the_source_distribution_has_the_page_and_its_sources_so_that_a_wheel_needs_no_node(
    tmp_path: Path,
) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert not (folder / "web" / "node_modules").exists()
    (tmp_path / "empty").mkdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "out")]
    subprocess.run(
        command,
        cwd=folder,
        check=True,
        capture_output=True,
        env={**os.environ, "PATH": str(tmp_path / "empty")},
    )
    (wheel,) = (tmp_path / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        assert "millrace/serve/static/index.html" in opened.namelist()


@pytest.mark.web
def test_the_modules_of_the_page_pass_their_own_tests() -> None:
    answer = subprocess.run([sys.executable, str(WEB / "build.py"), "test"], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
