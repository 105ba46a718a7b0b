"""`make mutants`: applies each wrong change to a copy of the package, and sees whether the tests notice.

    PYTHONPATH=tests python -m mutants.run [--only WORD] [--from N] [--limit SECONDS] [--sure]

A line for each: caught (by which test), MISSED, or equivalent (and why). Exits 1 if any was missed.
"""

import argparse
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import polars  # noqa: ICN001, F401 - loaded once, and not by each child
import pyarrow  # noqa: ICN001, F401
import pytest
import yaml  # noqa: F401

from mutants.aggregates import AGGREGATES as MUTANTS_OF_AGGREGATES
from mutants.catalogue import MUTANTS
from mutants.chained import CHAINED as MUTANTS_OF_CHAINED
from mutants.mutant import Mutant
from mutants.own import OWN as MUTANTS_OF_OWN

ROOT = Path(__file__).parents[2]

PATTERNS: tuple[tuple[str, ...], ...] = (
    (
        "tests/patterns/cep/test_matcher.py",
        "tests/patterns/cep/test_contiguous.py",
        "tests/patterns/sql/test_match_recognize.py",
    ),
    (
        "tests/testing/test_transcripts.py",
        "-k",
        "test_our_transcripts_hold and engine and (patterns or rows)",
    ),
    ("tests/patterns", "tests/engine/operators/test_match.py", "tests/engine/operators/test_quiet_rows.py"),
)
KEYED: tuple[tuple[str, ...], ...] = (
    (
        "tests/testing/test_transcripts.py",
        "-k",
        "test_our_transcripts_hold and engine and (joins or processors)",
    ),
    (
        "tests/test_random_processors.py",
        "tests/engine/operators/test_interval_join.py",
        "tests/engine/operators/test_regular_join.py",
        "tests/engine/operators/test_table_join.py",
        "tests/graph/build/test_join.py",
    ),
    (
        "tests/engine/operators/test_process.py",
        "tests/engine/operators/test_deduplicate.py",
        "tests/engine/test_rescale.py",
    ),
)
OWN: tuple[tuple[str, ...], ...] = (
    ("tests/test_evictors.py", "tests/test_parallelism.py", "tests/test_own_triggers.py"),
    ("tests/testing/test_transcripts.py", "-k", "test_our_transcripts_hold and (evictors or own)"),
)
"""Of triggers of a user's own, evictors and parallelism."""
CHAINED: tuple[tuple[str, ...], ...] = (
    (
        "tests/runners/test_upstream.py",
        "tests/log/test_writer_watermarks.py",
        "tests/engine/test_output_watermarks.py",
        "tests/runners/test_chained_jobs.py",
        "-m",
        "not kafka and not slow",
    ),
    ("tests/test_upstream_against_model.py",),
)
"""Of how far runs vouch for topics."""
AGGREGATES: tuple[tuple[str, ...], ...] = (
    (
        "tests/aggregates/test_arguments.py",
        "tests/aggregates/test_rankings.py",
        "tests/graph/build/test_keys.py",
        "tests/graph/test_identities.py",
    ),
)
FRAMES: tuple[tuple[str, ...], ...] = (
    ("tests/testing/test_transcripts.py", "-k", "test_our_transcripts_hold and engine and frames"),
    tuple(f"tests/engine/operators/test_over_{part}.py" for part in ("rows", "range", "running", "lead")),
    ("tests/engine/operators/test_over.py", "tests/engine/operators/test_over_corrections.py"),
)
WINDOWS: tuple[tuple[str, ...], ...] = (
    ("tests/testing/test_transcripts.py", "-k", "test_our_transcripts_hold and engine"),
    (
        "tests/engine/operators/test_windows.py",
        "tests/testing/test_script.py",
        "tests/test_windows.py",
        "tests/test_triggers.py",
        "tests/engine/test_trigger_state.py",
        "tests/test_watermarks.py",
    ),
    ("tests/engine",),
    ("tests/test_engine_against_model.py",),
    ("tests/test_woven.py", "-k", "test_woven_transcripts_hold and engine"),
)
"""The fast tests of the engine, those that notice most for their time first; the next are asked where these notice nothing."""
TIME_LIMIT = 200
"""Seconds of CPU after which a run counts as noticed: it would not end. However busy the machine is, they are its own."""
HANGS = 20 * TIME_LIMIT
"""Seconds after which a run that waits for something is given up."""


def stale(mutant: Mutant, package: Path) -> str | None:
    """Why the change cannot be made any more."""
    count = len(mutant.found((package / mutant.file).read_text()))
    return None if count == 1 else f"{mutant.file} has {count} times: {mutant.before}"


def noticed(mutant: Mutant, package: Path) -> str | None:
    """The test that fails with the change made, or None."""
    path = package / mutant.file
    right = path.read_text()
    path.write_text(mutant.apply(right))
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    try:
        about_patterns = any(word in mutant.file for word in ("patterns/", "operators/match"))
        about_keys = any(
            word in mutant.file
            for word in ("process", "deduplicate", "join", "keyed_table", "ordered_rows", "rescale")
        )
        if mutant in MUTANTS_OF_OWN:
            phases = OWN
        elif mutant in MUTANTS_OF_CHAINED:
            phases = CHAINED
        elif mutant in MUTANTS_OF_AGGREGATES:
            phases = (*AGGREGATES, *WINDOWS)
        elif "operators/over" in mutant.file:
            phases = FRAMES
        else:
            phases = (*PATTERNS, *WINDOWS) if about_patterns else (*WINDOWS, *PATTERNS)
            phases = (*KEYED, *phases) if about_keys else phases
        return next((failed for tests in phases if (failed := first_failure(package.parent, tests))), None)
    finally:
        path.write_text(right)
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)


def first_failure(source: Path, tests: Sequence[str]) -> str | None:
    """The first test that fails on the package in `source`, or None. It runs in a child that finds all large packages loaded."""
    with tempfile.TemporaryFile("w+") as output:
        child = multiprocessing.get_context("fork").Process(
            target=_tested, args=(source, tests, output.fileno())
        )
        child.start()
        child.join(HANGS)
        if child.exitcode is None:
            child.kill()
            child.join()
            return "it does not end"
        output.seek(0)
        text = output.read()
    if child.exitcode == 0:
        return None
    if child.exitcode == -signal.SIGXCPU:
        return "it does not end"
    found = re.search(r"^FAILED \S*?([^/\s]+\.py\S*)", text, re.MULTILINE)
    if found is None or child.exitcode != 1:
        raise SystemExit(f"the tests do not run, so that nothing can be said:\n{text.strip()}")
    return found[1]


def _tested(source: Path, tests: Sequence[str], output: int) -> None:
    """Runs tests on the package in `source`; what they print goes to a file."""
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    os.environ |= {"PYTHONPATH": str(source), "MILLRACE_SHRINK": "0"}
    resource.setrlimit(resource.RLIMIT_CPU, (TIME_LIMIT, resource.RLIM_INFINITY))
    os.chdir(source.parent)
    sys.path.insert(0, str(source))
    code = pytest.main(
        ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-m", "not long and not spark", *tests]
    )
    sys.stdout.flush()
    os._exit(int(code))


def chosen() -> tuple[list[Mutant], float, bool]:
    """What the command line asks for, until when, and whether the tests are known to pass as things are."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="a word of the file or of the description")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the number to start at")
    parser.add_argument("--limit", type=float, default=float("inf"), help="stop after so many seconds")
    parser.add_argument(
        "--sure", action="store_true", help="the tests pass without any change: do not try that first"
    )
    asked = parser.parse_args()
    picked = [mutant for mutant in MUTANTS[asked.first - 1 :] if asked.only in f"{mutant.file} {mutant.says}"]
    return picked, time.monotonic() + asked.limit, asked.sure


def copied(folder: Path) -> Path:
    """The package in a folder of its own, with its tests, so that the checkout may change meanwhile."""
    for part in ("src", "tests", "docs"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder / "src" / "millrace"


def main() -> int:
    """Tries them one at a time."""
    picked, deadline, sure = chosen()
    missed = made = 0
    with tempfile.TemporaryDirectory(prefix="millrace-mutants-") as folder:
        package = copied(Path(folder))
        if wrong := [why for mutant in MUTANTS if (why := stale(mutant, package))]:
            print("these changes cannot be made; bring the catalogue up to date:", *wrong, sep="\n  ")
            return 2
        if not picked:
            print("there is no such mutant")
            return 2
        for tests in () if sure else (*WINDOWS, *PATTERNS, *KEYED, *AGGREGATES):
            if unmutated := first_failure(package.parent, tests):
                print(f"the tests fail without any change: {unmutated}")
                return 2
        for mutant in picked:
            if time.monotonic() > deadline:
                print(f"time is up; go on with --from {MUTANTS.index(mutant) + 1}")
                break
            missed, made = missed + tried(mutant, package), made + 1
    print(f"{made} mutants, {missed} missed")
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
    print(
        f"{number:3}  {mutant.file}: {mutant.says}\n     {outcome} ({time.monotonic() - begun:.0f} s)",
        flush=True,
    )
    return outcome == "MISSED"


if __name__ == "__main__":
    sys.exit(main())
