"""What the doctor finds, and what it says to do."""

import os
import stat
from pathlib import Path

import pytest

from millrace.cli import doctor
from millrace.cli.doctor import Finding
from millrace.config import Settings
from millrace.errors import ComponentMissing
from millrace.runners import java


def fake_java(folder: Path, answer: str, code: int = 0) -> Path:
    """A folder with a `bin/java` that answers so."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit {code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder


def finding(name: str, settings: Settings) -> Finding:
    return next(found for found in doctor.examine(settings) if found.name == name)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings().with_options(
        run_on="spark", state_dir=tmp_path / "state", log_url=f"embedded:{tmp_path / 'log'}"
    )


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 8), ("25-ea", 25)])
def test_the_major_version_is_read_off_any_style(version: str, major: int) -> None:
    assert java.Java(Path("java"), version).major == major


def test_java_home_wins_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, 'openjdk version "21.0.1" 2023-10-17')))
    assert java.find() == java.Java(tmp_path / "bin" / "java", "21.0.1")


def test_java_that_is_too_old_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, 'java version "1.8.0_392"')))
    with pytest.raises(
        ComponentMissing, match=r"needs Java 17 or newer, but .*bin/java is 1\.8\.0_392; install a Java 17"
    ):
        java.find()
    found = finding("Java", settings)
    assert (found.verdict, "install a Java 17 or newer" in found.remedy) == ("missing", True)


def test_java_that_is_absent_is_missing_for_spark_and_only_a_pity_for_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert finding("Java", settings).verdict == "missing"
    assert "no java on the PATH" in finding("Java", settings).found
    assert finding("Java", settings.with_options(run_on="local")).verdict == "absent"


def test_a_wrong_java_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(ComponentMissing, match=r"JAVA_HOME is '.*nothing', where there is no bin/java"):
        java.find()


@pytest.mark.parametrize(("answer", "code"), [("Segmentation fault", 139), ("version unknown", 0)])
def test_a_java_that_does_not_answer_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, answer, code)))
    with pytest.raises(ComponentMissing, match=f"-version says '{answer}'"):
        java.find()


def test_folders_that_can_be_made_are_fine_and_nothing_is_made(tmp_path: Path, settings: Settings) -> None:
    assert finding("state folder", settings).verdict == "ok"
    assert finding("log folder", settings).verdict == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_a_folder_is_missing(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "state").write_text("")
    found = finding("state folder", settings)
    assert (found.verdict, "is not a folder" in found.found) == ("missing", True)


def test_a_folder_that_cannot_be_written_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    (tmp_path / "state").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = finding("state folder", settings)
    assert (found.verdict, found.remedy.startswith("chmod u+wx")) == ("missing", True)


def test_a_full_disk_is_missing(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(doctor, "MIN_FREE_DISK", 2**70)
    assert finding("state folder", settings).verdict == "missing"


def test_the_settings_that_spark_gets_are_shown(settings: Settings) -> None:
    assert finding("spark.driver.memory", settings.with_options(spark_driver_memory="3g")).found == "3g"
    assert finding("spark.x", settings.with_options(spark_conf={"spark.x": 1})).found == "1"


def test_everything_wrong_has_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert all(found.remedy for found in doctor.examine(settings) if found.verdict != "ok")
