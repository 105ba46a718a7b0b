"""Whatever the command line says ends in an exit code and at most a few lines, never in a traceback."""

import random
from pathlib import Path

import pytest

from fuzz.inputs import CASES, SEED
from millrace import cli

WORDS = [
    "topics",
    "list",
    "describe",
    "count",
    "lag",
    "tail",
    "explain",
    "replay",
    "savepoint",
    "doctor",
    "transcript",
    "backfill",
    "record",
]
OPTIONS = ["--log", "--json", "--max", "--no-wait", "--from-start", "--topic", "--config", "--run", "--recording", "--events", "--state", "-c", "--help", "--"]  # fmt: skip
VALUES = ["", " ", "x", "-1", "0", "1e9", "nan", "kafka://", "kafka://x", "kafka://h:99999999", "kafka://a@b:1", "embedded:", "embedded:/dev/null", "s3://x", "x" * 5_000, "\x1b[31m", "ä\u2028", "../..", "/", "/dev/null", "no.py:JOB", "os:path", ":", "a:b:c", "%s%n", "{}"]  # fmt: skip


def test_no_arguments_end_in_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLRACE_KAFKA_WAIT", "0s")
    for number in range(CASES):
        chance = random.Random(SEED * 1_000_003 + number)
        words = [chance.choice(WORDS) for _ in range(chance.randint(1, 2))]
        words += [chance.choice(OPTIONS + VALUES) for _ in range(chance.randint(0, 5))]
        if any(word.startswith("kafka://h:") for word in words):
            continue
        words += ["--no-wait"] if "tail" in words else []
        code = cli.main(words)
        said = capsys.readouterr().err
        assert code in (0, 1, 2), (number, words)
        assert "Traceback" not in said, (number, words, said)
        assert "should not have happened" not in said, (number, words, said)
