"""`make metrics`: figures of the source, of a tree that is small enough to count by hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "metrics.py"
ONE = '''"""A module."""

CLOCK = "_clock"


class Station:
    def of(self) -> str:
        # why it is so
        return "_weight"  # noqa: RET505
'''
OTHER = """class Station:
    name = "_clock"
"""

pytestmark = pytest.mark.slow


def measure(tree: Path, *options: str | Path) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, SCRIPT, "--tree", tree, *options]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_small_tree_is_counted(tmp_path: Path) -> None:
    package = tmp_path / "src" / "millrace"
    (package / "inner").mkdir(parents=True)
    (package / "one.py").write_text(ONE)
    (package / "inner" / "other.py").write_text(OTHER)
    (package / "made_pb2.py").write_text("generated = 1\n")
    assert json.loads(measure(tmp_path, "--json").stdout) == {
        "lines": 11,
        "files": 2,
        "entries at the top level": 3,
        "lines per file": {"median": 6, "p90": 9, "max": 9},
        "lines per function": {"median": 3, "p90": 3, "max": 3},
        "class names used twice": 1,
        "internal columns that are not declared": 1,
        "comments": 1,
    }


def test_a_folder_without_source_is_named(tmp_path: Path) -> None:
    done = measure(tmp_path, "--json")
    assert done.returncode != 0
    assert f"{tmp_path}/src/millrace has no Python" in done.stderr


def test_two_trees_stand_beside_each_other(tmp_path: Path) -> None:
    for tree, lines in (("before", 3), ("now", 1_200)):
        (tmp_path / tree / "src/millrace").mkdir(parents=True)
        (tmp_path / tree / "src/millrace/one.py").write_text("def f() -> None: ...\n" + "\n" * (lines - 1))
    table = measure(tmp_path / "now", "--against", tmp_path / "before").stdout.splitlines()
    assert table[0].split() == ["before", "now"]
    assert table[1].split() == ["lines", "3", "1,200"]
