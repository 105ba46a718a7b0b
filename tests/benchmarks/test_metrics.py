"""`make metrics`: figures of the source, of a tree that is small enough to count by hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "metrics.py"
ONE = '''"""A module."""

CLOCK = "_clock"


class Place:
    def of(self) -> str:
        # why it is so
        return "_weight"  # noqa: RET505
'''
OTHER = """class Place:
    name = "_clock"
"""

pytestmark = pytest.mark.slow


def measured(tree: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, SCRIPT, "--tree", tree, "--json"], capture_output=True, text=True)


def test_a_small_tree_is_counted(tmp_path: Path) -> None:
    package = tmp_path / "src" / "millrace"
    (package / "inner").mkdir(parents=True)
    (package / "one.py").write_text(ONE)
    (package / "inner" / "other.py").write_text(OTHER)
    (package / "made_pb2.py").write_text("generated = 1\n")
    assert json.loads(measured(tmp_path).stdout) == {
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
    done = measured(tmp_path)
    assert done.returncode != 0
    assert f"{tmp_path}/src/millrace has no Python" in done.stderr
