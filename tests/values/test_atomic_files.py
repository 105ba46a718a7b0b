import os
from pathlib import Path

import pytest

from millrace.values.atomic_files import replace_file, write_file


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_made_and_replaced(tmp_path: Path, *, durable: bool) -> None:
    for content in (b"old", b"new"):
        write_file(tmp_path / "file", content, durable=durable)
        assert (tmp_path / "file").read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_writer_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, b"old", durable=True)

    def write_half() -> None:
        with replace_file(path, durable=True) as draft:
            draft.write_bytes(b"ha")
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_half()
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"old")]


def test_what_a_killed_writer_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".file.draft").write_bytes(b"half of something longer")
    write_file(tmp_path / "file", b"new", durable=True)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"new")]


def test_a_durable_file_is_on_disk_before_it_is_renamed_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def record(descriptor: int) -> None:
        synced = Path(f"/proc/self/fd/{descriptor}").readlink().name
        steps.append(f"{synced}, renamed: {(tmp_path / 'file').exists()}")

    monkeypatch.setattr(os, "fsync", record)
    write_file(tmp_path / "file", b"new", durable=True)
    assert steps == [".file.draft, renamed: False", f"{tmp_path.name}, renamed: True"]
