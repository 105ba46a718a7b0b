"""Kafka's jars: fetched once, checked every time."""

import shutil
from pathlib import Path

import pytest
import yaml

from millrace.devtools.brokers import jars
from millrace.errors import ComponentMissing

ROOT = Path(__file__).parents[3]


@pytest.fixture
def nothing_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_without_maven_the_way_with_docker_is_named(
    nothing_cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(nothing_cached))
    with pytest.raises(
        ComponentMissing, match=r"no mvn on the PATH .* apt install maven.* docker compose up"
    ):
        jars.fetch()


def test_maven_that_fails_is_quoted(nothing_cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = nothing_cached / "mvn"
    failing.write_text("#!/bin/sh\necho '[ERROR] Could not resolve: no route to host'\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{nothing_cached}:/bin:/usr/bin")
    with pytest.raises(ComponentMissing, match="no route to host"):
        jars.fetch()
    assert not jars.jars_folder().exists()


@pytest.mark.kafka
def test_a_jar_that_was_changed_or_lost_is_refused(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(jars.fetch(), tmp_path / "jars"))
    jars.check(copy)
    changed = copy / next(iter(jars.read_checksums()))
    changed.write_bytes(changed.read_bytes() + b"\0")
    with pytest.raises(ComponentMissing, match=f"{changed.name} is not the file that its checksum"):
        jars.check(copy)
    changed.unlink()
    with pytest.raises(ComponentMissing, match=f"{changed.name} is missing; remove the folder"):
        jars.check(copy)


def test_the_versions_that_are_named_agree() -> None:
    assert (
        f"<version>{jars.VERSION}</version>" in (ROOT / "src/millrace/devtools/brokers/pom.xml").read_text()
    )
    assert f"kafka_2.13-{jars.VERSION}.jar" in jars.read_checksums()
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    assert compose["services"]["kafka"]["image"] == f"apache/kafka:{jars.VERSION}"
