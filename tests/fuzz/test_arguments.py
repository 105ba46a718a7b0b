"""Any command line ends with an exit code and at most a few lines, never with a traceback."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.inputs import CASES, SEED
from millrace.cli import main

JOB = """
from dataclasses import dataclass
import millrace as mr

@dataclass
class Ride:
    line: str
    riders: int

RIDES, COPIES = mr.Topic("rides", Ride, key="line"), mr.Topic("copies", Ride, key="line")
JOB = mr.Job("copy", mr.read(RIDES).write(COPIES))
"""
LINES = [
    *(
        "topics list",
        "topics describe rides",
        "topics count rides",
        "topics lag",
        "topics tail rides --no-wait --from-start --max 3",
        "verify",
    ),
    *(
        "explain j.py:JOB",
        "replay j.py:JOB rides.csv",
        "doctor",
        "transcript t.yaml",
        "savepoint s --run copy",
    ),
    *(
        "backfill j.py:JOB --on local",
        "record --mqtt mqtt://localhost:1 x",
        "ingest files rides.csv --to j.py:RIDES --time at",
    ),
    *("ingest files rides.jsonl --to j.py:RIDES", "run j.py:JOB --on local --until-caught-up"),
]
"""Commands that are correct, or nearly so."""
WORDS = [
    "topics",
    "list",
    "describe",
    "tail",
    "explain",
    "replay",
    "verify",
    "transcript",
    "rides",
    "copies",
    "JOB",
]
OPTIONS = [
    "--json", "--max", "--from-start", "--topic", "--config", "--run", "--recording", "--events", "--state",
    "-c", "--help", "--", "--time", "--to", "--retry", "--reset", "--restore",
]  # fmt: skip
VALUES = [
    "", " ", "x", "-1", "0", "1e9", "nan", "kafka://", "kafka://x", "kafka://h:99999999", "kafka://a@b:1",
    "embedded:", "embedded:/dev/null", "s3://x", "x" * 5_000, "\x1b[31m", "ä\u2028", "../..", "/",
    "/dev/null", "no.py:JOB", "j.py:RIDES", "j.py:mr", "os:path", ":", "a:b:c", "%s%n", "{}", "rides.csv",
    "\0",
]  # fmt: skip
ENDLESS = {"run": "--until-caught-up", "tail": "--no-wait"}
"""Commands that end only with an option."""


def a_line(chance: random.Random) -> list[str]:
    """A command with up to three words replaced, removed or added."""
    words = chance.choice(LINES).split()
    for _ in range(chance.randint(0, 3)):
        at = chance.randrange(len(words) + 1)
        words[at : at + chance.randint(0, 1)] = [
            chance.choice(chance.choice([WORDS, OPTIONS, VALUES]))
        ] * chance.randint(0, 1)
    return words


def test_no_arguments_end_in_a_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    took: Callable[[int], None],
) -> None:
    took(CASES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLRACE_KAFKA_WAIT", "1ms")
    (tmp_path / "j.py").write_text(JOB)
    (tmp_path / "rides.csv").write_text(
        "line,riders,at\n7,3,2024-01-01T00:00:00Z\n8,x,2024-01-01T00:00:00Z\n"
    )
    (tmp_path / "rides.jsonl").write_text('{"line": "7", "riders": 3}\n{\n')
    codes = dict[int, int]()
    for number in range(CASES):
        words = a_line(random.Random(SEED * 1_000_003 + number))
        needed = [option for word, option in ENDLESS.items() if word in words]
        if "--" in words and needed:
            continue
        code = main.main(words + needed)
        printed = capsys.readouterr().err
        assert code in (0, 1, 2), (number, words)
        assert "Traceback" not in printed, (number, words, printed)
        assert "unexpected error" not in printed, (number, words, printed)
        codes[code] = codes.get(code, 0) + 1
    assert codes.keys() == {0, 1, 2}, "some are done, some fail, some are not understood"
