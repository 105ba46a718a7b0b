"""Flips bits in copies of a log and its state. A run over them must refuse, or give the right results."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree

from bench.killable_runs import DAMAGED, RUN, TIMEOUT, run_once
from bench.verdict import compare
from millrace.errors import LogDamaged, RunFailed
from millrace.log import open_log

FILES = ("log/inputs.db", "log/results.db", f"state/{RUN}/local.db", f"state/{RUN}/identity.json")


def flip_bits(
    log: Path, state: Path, folder: Path, *, flips: int, seed: int, report: Callable[[str], None]
) -> Counter[str]:
    """Counts runs over damaged copies: `refused`, `unharmed`, `wrong`,
    or `not read` where the run did not need the damaged part.
    """
    chance = random.Random(seed)  # noqa: S311 - places, not secrets
    tally: Counter[str] = Counter()
    for number in range(flips):
        target = folder / "flipped"
        rmtree(target, ignore_errors=True)
        _copy_files(log, target / "log", ("inputs.db", "results.db"))
        _copy_files(
            state / RUN,
            target / "state" / RUN,
            ("local.db", "identity.json", "quarantine.json", "uncommitted"),
        )
        path = target / FILES[number % len(FILES)]
        position = chance.randrange(path.stat().st_size)
        body = bytearray(path.read_bytes())
        body[position] ^= 1 << chance.randrange(8)
        path.write_bytes(body)
        outcome = _run_on_copy(target)
        tally[outcome] += 1
        report(f"bit {number + 1} of {flips}: {path.relative_to(target)} at {position}: {outcome}")
    return tally


def _run_on_copy(copy: Path) -> str:
    process = get_context("forkserver").Process(
        target=run_once, args=(f"embedded:{copy / 'log'}", str(copy / "state"), "", True), daemon=True
    )
    process.start()
    process.join(TIMEOUT)
    if process.is_alive():
        process.kill()
        raise RunFailed(f"a run over a damaged copy did not end within {TIMEOUT:.0f} s")
    if process.exitcode == DAMAGED:
        return "refused"
    if process.exitcode != 0:
        return "failed otherwise"
    try:
        with closing(open_log(f"embedded:{copy / 'log'}")) as log:
            verdict = compare(log, 0)
    except LogDamaged:
        return (
            "not read"  # the run did not need that part; the comparison, which reads everything, is refused
        )
    return "unharmed" if verdict.is_right else "wrong"


def _copy_files(source: Path, target: Path, names: tuple[str, ...]) -> None:
    """Copies databases through SQLite, so that the copy includes their write-ahead logs."""
    target.mkdir(parents=True)
    for name in names:
        if not (source / name).exists():
            continue
        if name.endswith(".db"):
            with (
                closing(sqlite3.connect(source / name)) as one,
                closing(sqlite3.connect(target / name)) as other,
            ):
                one.backup(other)
                other.execute("pragma journal_mode = wal")
        else:
            (target / name).write_bytes((source / name).read_bytes())
