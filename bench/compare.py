"""Compares the speed of this tree with that of an earlier commit: `make compare BASE=<commit>`.

Speeds of two runs cannot be compared: the machine changes its pace between them. So both trees are measured in turn, over and
over, and each round gives one ratio per case:

    round    before    now       ratio
    1        800,000   808,000   1.01
    2        640,000   640,000   1.00     the machine is slower now; the ratio does not care
    3        790,000   774,000   0.98

The table has the median of the ratios, the lowest and the highest. A ratio above 1 means that this tree is faster.
Every second round measures this tree first, so that neither always runs on a machine that is still warm from the other.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
CASES = ("vehicle-distribution", "emergency-stop")
SPEED = "events_per_s"
COST = "cpu_us_per_event"


@dataclass
class Comparison:
    """What the rounds say of one case."""

    speeds: dict[str, list[float]] = field(default_factory=lambda: {"before": [], "now": []})
    costs: dict[str, list[float]] = field(default_factory=lambda: {"before": [], "now": []})

    def add(self, tree: str, figures: dict[str, float]) -> None:
        """Notes the figures of one tree in one round."""
        self.speeds[tree].append(figures[SPEED])
        self.costs[tree].append(figures[COST])

    @property
    def ratios(self) -> list[float]:
        """How many times as fast this tree is, per round."""
        pairs = zip(self.speeds["before"], self.speeds["now"], strict=False)
        return sorted(now / before for before, now in pairs)

    def row(self, case: str) -> dict[str, object]:
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


def command(tree: Path, names: Sequence[str], scale: float) -> list[str]:
    """`millrace bench engine` of a tree, whose entry point its own `pyproject.toml` names."""
    scripts = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts["millrace"].split(":")
    start = f"import sys; sys.argv[0] = 'millrace'; from {module} import {function}; {function}()"
    only = [word for name in names for word in ("--only", name)]
    return [sys.executable, "-c", start, "bench", "engine", *only, "--scale", str(scale), "--json"]


def measure(tree: Path, names: Sequence[str], scale: float) -> Iterator[dict[str, float | str]]:
    """The figures of each case of one tree."""
    path = os.pathsep.join([str(tree / "src"), str(tree)])
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.run(
        command(tree, names, scale), cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if process.returncode != 0:
        raise SystemExit(f"the benchmark of {tree} failed: {process.stderr.strip()[-2_000:]}")
    yield from (json.loads(line) for line in process.stdout.splitlines() if line.startswith("{"))


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


def compare(before: Path, names: Sequence[str], *, rounds: int, scale: float) -> dict[str, Comparison]:
    """Measures both trees in turn."""
    comparisons: dict[str, Comparison] = {}
    trees = {"before": before, "now": ROOT}
    for number in range(rounds):
        for tree_name in sorted(trees, reverse=number % 2 == 1):
            for figures in measure(trees[tree_name], names, scale):
                case = f"{figures['name']} {figures['runner']} {figures['rows_per_batch']:,}"
                comparisons.setdefault(case, Comparison()).add(
                    tree_name, {key: float(figures[key]) for key in (SPEED, COST)}
                )
            print(f"round {number + 1} of {rounds}: measured {tree_name}", file=sys.stderr, flush=True)
    return {case: comparison for case, comparison in comparisons.items() if comparison.ratios}


def main() -> None:
    """Prints a line per case."""
    parser = argparse.ArgumentParser(prog="make compare", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("base", metavar="BASE", help="the commit to compare with")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help=f"as in millrace bench engine; {', '.join(CASES)} by default",
    )
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="how often each tree is measured (5)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="smaller kinds, to see that all works")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds} measures nothing; say 1 or more")
    with checkout(args.base) as before:
        found = compare(before, args.only or CASES, rounds=args.rounds, scale=args.scale)
    rows = [comparison.row(case) for case, comparison in found.items()]
    if args.json:
        print(*map(json.dumps, rows), sep="\n")
        return
    print(
        f"{'case':44} {'before':>10} {'now':>10} {'ratio':>6} {'lowest':>7} {'highest':>7} {'µs before':>9} {'µs now':>7}"
    )
    for row in rows:
        print(
            f"{row['case']:44} {row['before']:10,} {row['now']:10,} {row['ratio']:6} {row['lowest']:7} {row['highest']:7} "
            f"{row['cpu_before']:9} {row['cpu_now']:7}"
        )


if __name__ == "__main__":
    main()
