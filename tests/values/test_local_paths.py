"""A URL given as a folder or file is refused, instead of becoming a folder of that name."""

from pathlib import Path

import pytest

from millrace.cli.main import main
from millrace.config import Settings
from millrace.errors import ConfigError, LogError
from millrace.log import open_log
from millrace.runners import frame_files
from millrace.runners.state.savepoint import check_target, load_savepoint
from millrace.values.local_paths import require_local

URLS = [
    "s3a://bucket/state",
    "s3a:/bucket/state",
    "hdfs://host/x",
    "abfss://c@a.dfs.core.windows.net/x",
    "file:///var/x",
]


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_not_a_state_folder(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"state\.dir.*is a URL.*/var"):
        Settings().with_options(state_dir=url)
    with pytest.raises(ConfigError, match="is a URL"):
        Settings().with_options(state_dir=Path(url))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_not_the_folder_of_an_embedded_log(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for given in (url, f"embedded:{url}"):
        with pytest.raises((ConfigError, LogError), match=r"embedded:data/log|is a URL"):
            open_log(given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_not_a_savepoint_nor_a_file_of_results(url: str) -> None:
    for refuse in (
        check_target,
        load_savepoint,
        lambda path: frame_files.check_format(path.with_suffix(".csv")),
    ):
        with pytest.raises(ConfigError, match="is a URL"):
            refuse(Path(url))


def test_the_command_line_refuses_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            [
                "run",
                "vehicle-distribution",
                "--on",
                "local",
                "--state",
                "s3a://bucket/state",
                "--until-caught-up",
            ]
        )
        == 1
    )
    printed = capsys.readouterr().err
    assert "'s3a://bucket/state' is a URL" in printed
    assert len(printed.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_ordinary_paths_are_left_alone() -> None:
    for path in ("state", "/var/lib/x", "../a:b/c", "a/b:/c", "C:/x"):
        assert require_local(path, "the state folder") == Path(path)
