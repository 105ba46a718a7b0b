"""`make mutants`: applies each wrong change to a copy of the package, and sees whether the tests notice.

    PYTHONPATH=tests python -m mutants.run [--only WORD] [--from N] [--limit SECONDS]

A line for each: caught (by which test), MISSED, or equivalent (and why). Exits 1 if any was missed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]

TESTS = (
    "tests/test_transcripts.py",
    "tests/engine",
    "tests/test_testing.py",
    "tests/test_windows.py",
    "tests/test_engine_against_model.py",
)
"""The fast tests of the engine, those that notice most first."""
PATIENCE = 120
"""Seconds after which a run counts as noticed: it would not end."""


def stale(mutant: Mutant, package: Path) -> str | None:
    """Why the change cannot be made any more."""
    count = (package / mutant.file).read_text().count(mutant.before)
    return None if count == 1 else f"{mutant.file} has {count} times: {mutant.before}"


def noticed(mutant: Mutant, package: Path) -> str | None:
    """The test that fails with the change made, or None."""
    path = package / mutant.file
    right = path.read_text()
    path.write_text(right.replace(mutant.before, mutant.after))
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    try:
        return first_failure(package.parent)
    finally:
        path.write_text(right)
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)


def first_failure(source: Path) -> str | None:
    """The first test that fails on the package in `source`, or None."""
    settings = {"PYTHONPATH": str(source), "MILLRACE_SHRINK": "0", "POLARS_MAX_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-m", "not long and not spark", *TESTS]
    try:
        done = subprocess.run(
            command, cwd=source.parent, env=os.environ | settings, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return "it does not end"
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) \S*?([^/\s]+\.py\S*)", done.stdout, re.MULTILINE)
    if found is None or done.returncode != 1:
        return f"the tests do not start: {(done.stdout + done.stderr).strip().splitlines()[-1]}"
    return found[1]


def chosen() -> tuple[list[Mutant], float]:
    """What the command line asks for, and until when."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="a word of the file or of the description")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the number to start at")
    parser.add_argument("--limit", type=float, default=float("inf"), help="stop after so many seconds")
    asked = parser.parse_args()
    picked = [mutant for mutant in MUTANTS[asked.first - 1 :] if asked.only in f"{mutant.file} {mutant.says}"]
    return picked, time.monotonic() + asked.limit


def copied(folder: Path) -> Path:
    """The package in a folder of its own, with its tests, so that the checkout may change meanwhile."""
    for part in ("src", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder / "src" / "millrace"


def main() -> int:
    """Tries them one at a time."""
    picked, deadline = chosen()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="millrace-mutants-") as folder:
        package = copied(Path(folder))
        if wrong := [why for mutant in MUTANTS if (why := stale(mutant, package))]:
            print("these changes cannot be made; bring the catalogue up to date:", *wrong, sep="\n  ")
            return 2
        if not picked:
            print("there is no such mutant")
            return 2
        if unmutated := first_failure(package.parent):
            print(f"the tests fail without any change: {unmutated}")
            return 2
        for mutant in picked:
            if time.monotonic() > deadline:
                print(f"time is up; go on with --from {MUTANTS.index(mutant) + 1}")
                break
            missed += tried(mutant, package)
    print(f"{len(picked)} mutants, {missed} missed")
    return 1 if missed else 0


def tried(mutant: Mutant, package: Path) -> bool:
    """Says what became of one; whether it was missed."""
    begun = time.monotonic()
    if mutant.equivalent:
        outcome = f"equivalent: {mutant.equivalent}"
    elif test := noticed(mutant, package):
        outcome = f"caught by {test}"
    else:
        outcome = "MISSED"
    number = MUTANTS.index(mutant) + 1
    print(f"{number:3}  {mutant.file}: {mutant.says}\n     {outcome} ({time.monotonic() - begun:.0f} s)", flush=True)
    return outcome == "MISSED"


if __name__ == "__main__":
    sys.exit(main())
