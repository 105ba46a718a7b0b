"""An error of a user's own code names its line and the row, wherever that code is called."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import millrace as mr
from millrace.cli import main
from millrace.errors import DefinitionError
from millrace.values.user_code import add_values, describe_failure, locate

PROGRAM = """
from dataclasses import dataclass
import polars as pl
import millrace as mr

def boom(frame):
    if (frame["word"] == "race").any():
        raise ValueError("no races")
    return frame

def shorten(word):
    return 1 // (len(word) - 5)

class Counting(mr.Processor):
    outputs = {"n": int}
    def process(self, row, ctx):
        self.check(row)
        ctx.emit(n=1)
    def check(self, row):
        if row["word"] == "race":
            raise KeyError("no races")

@dataclass
class Word:
    word: str

WORDS = mr.Topic("words", Word, key="word", partitions=1)
read = mr.read(WORDS)
in_batches = mr.Job("in_batches", read.map_batches(boom).write("out.a"))
in_expression = mr.Job(
    "in_expression",
    read.with_columns(n=pl.col("word").map_elements(shorten, return_dtype=pl.Int64)).write("out.b"),
)
in_processor = mr.Job("in_processor", read.group_by("word").process(Counting()).write("out.c"))
"""
LINES = {
    "in_batches": ("ValueError: no races (own_program.py:8 in boom; in map_batches(boom); row ", "race"),
    "in_expression": (
        "ZeroDivisionError: integer division or modulo by zero (own_program.py:12 in ",
        "wheel",
    ),
    "in_processor": ("KeyError: 'no races' (own_program.py:21 in check; row ", "race"),
}


@pytest.fixture(autouse=True)
def program(users_folder: Path) -> Iterator[None]:
    (users_folder / "own_program.py").write_text(PROGRAM)
    (users_folder / "words.csv").write_text("word,event_time\nmill,1000\nrace,2000\nwheel,3000\n")
    yield
    sys.modules.pop("own_program", None)


@pytest.mark.parametrize("job", LINES)
def test_replay_names_the_line_and_the_row(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["replay", f"own_program.py:{job}", "words.csv"]) == 1
    printed = capsys.readouterr().err
    text, word = LINES[job]
    assert printed.startswith(f"error: {text}")
    assert f'row {{"word": "{word}", "event_time": ' in printed
    assert printed.endswith("; --debug shows the traceback\n")
    assert printed.count("\n") == 1


@pytest.mark.parametrize("job", LINES)
def test_run_names_the_line_and_the_row_and_debug_shows_the_traceback(job: str) -> None:
    command = [sys.executable, "-m", "millrace.cli.main"]
    ingest = [
        *command,
        "ingest",
        "files",
        "words.csv",
        "--to",
        "own_program.py:WORDS",
        "--time",
        "event_time",
    ]
    assert subprocess.run(ingest, capture_output=True, check=False).returncode == 0
    run = [*command, "run", f"own_program.py:{job}", "--until-end"]
    ended = subprocess.run(run, capture_output=True, text=True, check=False)
    text, word = LINES[job]
    error = ended.stderr.splitlines()[-1]
    assert ended.returncode == 1
    assert f"stopped by its own code in batch {int(job == 'in_processor')}: {text}" in error
    assert f'row {{"word": "{word}", "event_time": ' in error
    assert error.endswith(f"--retry {job}")
    traced = subprocess.run([*run, "--debug"], capture_output=True, text=True, check=False).stderr
    own, _, outer = traced.partition("The above exception was the direct cause of the following exception:")
    assert f'own_program.py", line {text.partition("own_program.py:")[2].partition(" ")[0]}, in ' in own
    assert "millrace.errors.JobQuarantined: job " in outer


def test_an_error_of_the_library_names_the_line_of_the_program_that_caused_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_program.py").write_text("import millrace as mr\n\nwindow = mr.windows.fixed('soon')\n")
    assert main.main(["explain", "own_program.py"]) == 1
    assert capsys.readouterr().err.endswith("(own_program.py:3 in <module>)\n")


def test_a_program_that_fails_when_loaded_is_shown_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_program.py").write_text("def start():\n    return 1 / 0\n\nstart()\n")
    assert main.main(["explain", "own_program.py"]) == 1
    error = "own_program fails when loaded: ZeroDivisionError: division by zero (own_program.py:2 in start); "
    assert error in capsys.readouterr().err


def test_the_caller_of_the_library_is_not_at_fault() -> None:
    with pytest.raises(DefinitionError) as refused:
        mr.windows.fixed("soon")
    assert locate(refused.value) == ""
    assert describe_failure(refused.value) == ""


def test_one_row_is_named_and_it_is_short() -> None:
    error = ValueError("wrong")
    add_values(error, {"text": "x" * 1_000, "_slot": 1, "ingestion_time": 5})
    add_values(error, {"text": "outer"})
    [note] = error.__notes__
    assert note.startswith('row {"text": "xxx')
    assert len(note) < 220
