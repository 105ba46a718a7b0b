"""`make compare`: what two trees' figures, measured in turn, say of their speeds."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import compare
from bench.compare import make_groups
from bench.kinds import all_kinds


def test_a_ratio_is_taken_within_a_round() -> None:
    comparison = compare.Comparison()
    for before, now in ((800, 808), (640, 640), (790, 774)):
        comparison.add("before", {"events_per_s": before, "cpu_us_per_event": 2.0})
        comparison.add("now", {"events_per_s": now, "cpu_us_per_event": 2.5})
    row = comparison.row("case")
    assert (row["ratio"], row["lowest"], row["highest"]) == (1.0, round(774 / 790, 3), 1.01)
    assert (row["before"], row["now"], row["cpu_before"], row["cpu_now"]) == (790, 774, 2.0, 2.5)


def test_a_commit_that_is_not_there_is_named() -> None:
    with (
        pytest.raises(SystemExit, match="BASE=no-such-commit cannot be checked out"),
        compare.checkout("no-such-commit"),
    ):
        pass


def test_each_kind_is_measured_once() -> None:
    groups = make_groups([*compare.USE_CASES, *compare.KIND_GROUPS], scale=1.0)
    measured = [name for group in groups for name in group.names]
    kinds = [kind.label for kind in all_kinds() if kind.group in compare.KIND_GROUPS]
    assert sorted(measured) == sorted([*compare.USE_CASES, *kinds])


@pytest.fixture
def trees(tmp_path: Path) -> dict[str, Path]:
    """Two trees whose command prints its arguments as the name of a case."""
    program = """
import json, sys

def main():
    words = sys.argv[1:]
    [name] = [word for word in words[words.index("--only") + 1:] if "/" in word]
    speed = {"events_per_s": SPEED, "cpu_us_per_event": 1}
    print(json.dumps({"name": name, "runner": "local", "rows_per_batch": 5, **speed}))
"""
    trees = {}
    for name, speed in (("before", 100), ("now", 110)):
        folder = trees[name] = tmp_path / name
        (folder / "src/millrace").mkdir(parents=True)
        (folder / f"src/{name}_program.py").write_text(program.replace("SPEED", str(speed)))
        (folder / "pyproject.toml").write_text(f"[project.scripts]\nmillrace = '{name}_program:main'")
    (trees["before"] / "src/millrace/measure").mkdir()
    return trees


@pytest.mark.slow
def test_a_kind_with_another_name_in_the_earlier_tree_is_found_there(
    trees: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "ROOT", trees["now"])
    groups = make_groups(["windows/global window", "windows/fixed"], scale=0.5)
    assert "windows/everything" in compare.command(trees["before"], groups[0], ["local"])
    found = compare.compare(trees["before"], groups, ["local"], rounds=2)
    assert {case: comparison.ratios for case, comparison in found.items()} == {
        "windows/global window local 5": [1.1, 1.1],
        "windows/fixed local 5": [1.1, 1.1],
    }


@pytest.mark.slow
def test_no_rounds_are_refused() -> None:
    words = [sys.executable, "-m", "bench.compare", "HEAD", "--rounds", "0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=compare.ROOT)
    assert done.returncode == 2
    assert "--rounds 0 measures nothing" in done.stderr
