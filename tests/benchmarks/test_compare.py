"""`make compare`: what two trees' figures, measured in turn, say of their speeds."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "compare.py"


@pytest.fixture(scope="module")
def compare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["compare"] = module
    spec.loader.exec_module(module)
    return module


def test_a_ratio_is_taken_within_a_round(compare: ModuleType) -> None:
    comparison = compare.Comparison()
    for before, now in ((800, 808), (640, 640), (790, 774)):
        comparison.add("before", {"events_per_s": before, "cpu_us_per_event": 2.0})
        comparison.add("now", {"events_per_s": now, "cpu_us_per_event": 2.5})
    row = comparison.row("case")
    assert (row["ratio"], row["lowest"], row["highest"]) == (1.0, round(774 / 790, 3), 1.01)
    assert (row["before"], row["now"], row["cpu_before"], row["cpu_now"]) == (790, 774, 2.0, 2.5)


def test_a_commit_that_is_not_there_is_named(compare: ModuleType) -> None:
    with (
        pytest.raises(SystemExit, match="BASE=no-such-commit cannot be checked out"),
        compare.checkout("no-such-commit"),
    ):
        pass


@pytest.mark.slow
def test_no_rounds_are_refused() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "HEAD", "--rounds", "0"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "--rounds 0 measures nothing" in done.stderr
