"""`millrace ingest` with a wrong option says so at the end, and with an exit code."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.cli import main

PROGRAM = """
from dataclasses import dataclass
import millrace as mr

@dataclass
class Word:
    word: str

WORDS = mr.Topic("words", Word, key="word", partitions=1)
"""


@pytest.fixture(autouse=True)
def folder(users_folder: Path) -> Iterator[Path]:
    (users_folder / "ingest_program.py").write_text(PROGRAM)
    yield users_folder
    sys.modules.pop("ingest_program", None)


def ingest(file: str, time: str) -> int:
    return main.main(["ingest", "files", file, "--to", "ingest_program.py:WORDS", "--time", time])


@pytest.mark.parametrize(("file", "text"), [
    ("w.csv", "word,at\na,1000\nb,2000\n"),
    ("w.jsonl", '{"word": "a", "at": 1000}\n{"word": "b", "at": 2000}\n'),
])  # fmt: skip
def test_a_misspelt_column_of_times_is_an_error_that_names_the_right_one(
    folder: Path, capsys: pytest.CaptureFixture[str], file: str, text: str
) -> None:
    (folder / file).write_text(text)
    assert ingest(file, "att") == 1
    printed = capsys.readouterr().err
    assert "no column 'att'" in printed
    assert "did you mean 'at'?" in printed


def test_ingest_that_writes_something_succeeds_and_shows_the_first_reject(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "w.csv").write_text("word,at\na,1000\nb,noon\nc,noon\n")
    assert ingest("w.csv", "at") == 0
    shown = "  the first reject: w.csv:3: wrong time: 'noon' in column 'at': it is neither"
    assert shown in capsys.readouterr().err
