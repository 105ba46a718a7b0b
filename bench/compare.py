"""Compares the speed of this tree with that of an earlier commit: `make compare BASE=<commit>`.

Figures of two runs cannot be compared: the machine changes its pace between them. So both trees are measured
in turn, over and over, one group of cases at a time, and each round gives one ratio per case:

    round    before    now       ratio
    1        800,000   808,000   1.01
    2        640,000   640,000   1.00     the machine is slower now; the ratio is not affected
    3        790,000   774,000   0.98

The table has the median of the ratios, the lowest and the highest. A ratio above 1 means that this tree is
faster. Every second round measures this tree first, so that neither always runs on a machine that is still
warm from the other.

By default it measures vehicle-distribution, emergency-stop and each kind of window, trigger and aggregate on
the local runner. A kind takes about a second. Five rounds of all kinds take about a quarter of an hour on two
cores that do nothing else, the two use cases as long again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.kinds import all_kinds

ROOT = Path(__file__).parents[1]
USE_CASES = ("vehicle-distribution", "emergency-stop")
KIND_GROUPS = ("windows", "triggers", "aggregates")
RUNNERS = ("spark", "spark-4-slots", "spark-sql", "spark-sql-complete", "spark-sql-parquet", "local")
TOLERANCE = 0.03
"""A case that is slower by more than this is named below the table."""
NEW_NAMES = {
    "windows/everything": "windows/global window",
    "triggers/every_event_time": "triggers/every event time",
}
"""Kinds that had another name while the benchmarks were in the package (`src/millrace/measure`)."""
SPEED = "events_per_s"
COST = "cpu_us_per_event"


@dataclass
class Comparison:
    """The figures of one case in each round."""

    speeds: dict[str, list[float]] = field(default_factory=lambda: {"before": [], "now": []})
    costs: dict[str, list[float]] = field(default_factory=lambda: {"before": [], "now": []})

    def add(self, tree: str, figures: dict[str, float]) -> None:
        """Adds the figures of one tree in one round."""
        self.speeds[tree].append(figures[SPEED])
        self.costs[tree].append(figures[COST])

    @property
    def ratios(self) -> list[float]:
        """How many times as fast this tree is, per round."""
        pairs = zip(self.speeds["before"], self.speeds["now"], strict=False)
        return sorted(now / before for before, now in pairs)

    def row(self, case: str) -> dict[str, Any]:
        """The case as one object."""
        ratios = self.ratios
        return {
            "case": case,
            "rounds": len(ratios),
            "before": round(statistics.median(self.speeds["before"])),
            "now": round(statistics.median(self.speeds["now"])),
            "ratio": round(statistics.median(ratios), 3),
            "lowest": round(ratios[0], 3),
            "highest": round(ratios[-1], 3),
            "cpu_before": round(statistics.median(self.costs["before"]), 2),
            "cpu_now": round(statistics.median(self.costs["now"]), 2),
        }


@dataclass(frozen=True)
class Group:
    """Cases that are measured by one command."""

    names: tuple[str, ...]
    scale: float


def make_groups(names: Sequence[str], *, scale: float) -> list[Group]:
    """The commands that measure these cases, kinds and groups of kinds."""
    groups = []
    for name in names:
        labels = tuple(kind.label for kind in all_kinds() if name in (kind.group, kind.label))
        groups.append(Group(labels or (name,), scale))
    return groups


def command(tree: Path, group: Group, runners: Sequence[str]) -> list[str]:
    """`millrace bench engine` of a tree, whose entry point its own `pyproject.toml` names."""
    scripts = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts["millrace"].split(":")
    start = f"import sys; sys.argv[0] = 'millrace'; from {module} import {function}; {function}()"
    old_names = (
        {new: old for old, new in NEW_NAMES.items()} if (tree / "src/millrace/measure").exists() else {}
    )
    only = [word for name in (*group.names, *runners) for word in ("--only", old_names.get(name, name))]
    return [sys.executable, "-c", start, "bench", "engine", *only, "--scale", str(group.scale), "--json"]


def measure(tree: Path, group: Group, runners: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """Each case of a group, and its figures in one tree."""
    path = os.pathsep.join([str(tree / "src"), str(tree)])
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.run(
        command(tree, group, runners), cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if process.returncode != 0:
        raise SystemExit(f"the benchmark of {tree} failed: {process.stderr.strip()[-2_000:]}")
    for line in process.stdout.splitlines():
        if line.startswith("{"):
            figures = json.loads(line)
            name = NEW_NAMES.get(figures["name"], figures["name"])
            case = f"{name} {figures['runner']} {figures['rows_per_batch']:,}"
            yield case, {key: float(figures[key]) for key in (SPEED, COST)}


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The files of a commit, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="millrace-compare-") as folder:
        tree = Path(folder, "tree")
        found = subprocess.run(
            ["git", "worktree", "add", "--detach", str(tree), commit],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode != 0:
            raise SystemExit(f"BASE={commit} cannot be checked out: {found.stderr.strip()}")
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def compare(
    before: Path, groups: Sequence[Group], runners: Sequence[str], *, rounds: int
) -> dict[str, Comparison]:
    """Measures both trees in turn, group by group. Cases that only one of them has are left out."""
    comparisons: dict[str, Comparison] = {}
    trees = {"before": before, "now": ROOT}
    for number in range(rounds):
        for group in groups:
            for tree_name in sorted(trees, reverse=number % 2 == 1):
                for case, figures in measure(trees[tree_name], group, runners):
                    comparisons.setdefault(case, Comparison()).add(tree_name, figures)
            names = f"{group.names[0]} and {len(group.names) - 1} more" if group.names[1:] else group.names[0]
            print(f"round {number + 1} of {rounds}: {names}", file=sys.stderr, flush=True)
    return {case: comparison for case, comparison in comparisons.items() if comparison.ratios}


def main() -> None:
    """Prints a line per case."""
    args = _parse_arguments()
    names = [name for name in args.only if name not in RUNNERS] or [*USE_CASES, *KIND_GROUPS]
    runners = [name for name in args.only if name in RUNNERS] or ["local"]
    with checkout(args.base) as before:
        groups = make_groups(names, scale=args.scale)
        found = compare(before, groups, runners, rounds=args.rounds)
    rows = [comparison.row(case) for case, comparison in found.items()]
    if args.json:
        print(*map(json.dumps, rows), sep="\n")
    else:
        _print_table(rows)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make compare", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("base", metavar="BASE", help="the commit to compare with")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help=f"as in millrace bench engine; by default {', '.join(USE_CASES + KIND_GROUPS)}, on local",
    )
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="how often each tree is measured (5)"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="smaller kinds, to see that everything works"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds} measures nothing; say 1 or more")
    return args


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = (
        f"{'before':>10} {'now':>10} {'ratio':>6} {'lowest':>7} {'highest':>7} {'µs before':>9} {'µs now':>7}"
    )
    print(f"{'case':44} {columns}")
    for row in rows:
        print(
            f"{row['case']:44} {row['before']:10,} {row['now']:10,} {row['ratio']:6} {row['lowest']:7} "
            f"{row['highest']:7} {row['cpu_before']:9} {row['cpu_now']:7}"
        )
    slower = [row["case"] for row in rows if row["ratio"] < 1 - TOLERANCE]
    print(f"slower by more than {TOLERANCE:.0%}: {', '.join(slower) or 'none'}")


if __name__ == "__main__":
    main()
