"""Sizes of the source, and what makes it hard to read: `make metrics`.

`make metrics ARGS="--against <folder>"` compares two trees.

Only hand-written Python of `src/millrace` counts. An internal column is a string literal that begins with one
underscore, such as `"_clock"`; it is declared if some module binds it to a name at its top level.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).parents[1]
COLUMN = re.compile(r"_[a-z][a-z0-9_]*")
DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|pragma|mypy:)")


@dataclass(frozen=True)
class Module:
    """One file."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """All of them, blank ones included."""
        return len(self.text.splitlines())

    def function_lengths(self) -> Iterator[int]:
        """The length of each function in lines."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or node.lineno) - node.lineno + 1

    def class_names(self) -> Iterator[str]:
        """The names of classes at the top level of the file."""
        yield from (node.name for node in self.tree.body if isinstance(node, ast.ClassDef))

    def count_comments(self) -> int:
        """Comments that tell a reader something: no directives to tools."""
        with self.path.open("rb") as file:
            found = [
                token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT
            ]
        return sum(not DIRECTIVE.match(comment) for comment in found)

    def declared_columns(self) -> Iterator[str]:
        """The internal columns that a name at the top level stands for."""
        for node in self.tree.body:
            if (
                isinstance(node, ast.Assign | ast.AnnAssign)
                and isinstance(node.value, ast.Constant)
                and _is_column(node.value.value)
            ):
                yield node.value.value

    def used_columns(self) -> Iterator[str]:
        """The internal columns that are written as strings in functions and classes."""
        bound = {id(node.value) for node in self.tree.body if isinstance(node, ast.Assign | ast.AnnAssign)}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and id(node) not in bound and _is_column(node.value):
                yield node.value


def _is_column(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and COLUMN.fullmatch(value) is not None


def read_modules(package: Path) -> list[Module]:
    """Every file that people wrote."""
    paths = sorted(path for path in package.rglob("*.py") if not path.name.endswith("_pb2.py"))
    return [Module(path, text := path.read_text(), ast.parse(text)) for path in paths]


def summarize(numbers: Sequence[int]) -> dict[str, int]:
    """The middle, what nine of ten stay below, and the most."""
    ordered = sorted(numbers)
    return {
        "median": round(statistics.median(ordered)),
        "p90": ordered[len(ordered) * 9 // 10],
        "max": ordered[-1],
    }


def measure_tree(tree: Path) -> dict[str, object]:
    """The figures of a tree."""
    package = tree / "src" / "millrace"
    found = read_modules(package)
    if not found:
        raise SystemExit(f"{package} has no Python; name a checkout: --tree FOLDER")
    entries = [
        path
        for path in package.iterdir()
        if path.name not in ("__pycache__", "static") and not path.name.startswith(".")
    ]
    classes = Counter(name for module in found for name in module.class_names())
    declared = {column for module in found for column in module.declared_columns()}
    undeclared = {column for module in found for column in module.used_columns()} - declared
    return {
        "lines": sum(module.lines for module in found),
        "files": len(found),
        "entries at the top level": len(entries),
        "lines per file": summarize([module.lines for module in found]),
        "lines per function": summarize([length for module in found for length in module.function_lengths()]),
        "class names used twice": sum(count > 1 for count in classes.values()),
        "internal columns that are not declared": len(undeclared),
        "comments": sum(module.count_comments() for module in found),
    }


def main() -> None:
    """Prints a line per figure."""
    parser = argparse.ArgumentParser(prog="make metrics", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="the checkout to look at; this one by default"
    )
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="an earlier checkout to compare with")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    trees = {"before": args.against, "now": args.tree} if args.against else {"now": args.tree}
    found = {name: measure_tree(tree) for name, tree in trees.items()}
    if args.json:
        print(json.dumps(found if args.against else found["now"]))
        return
    print(" " * 40, *(f"{name:34}" for name in trees))
    for figure in found["now"]:
        columns = (f"{_format_figure(figures[figure]):34}" for figures in found.values())
        print(f"{figure:40} {' '.join(columns)}".rstrip())


def _format_figure(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:,}" for name, number in value.items())
    return f"{value:,}"


if __name__ == "__main__":
    main()
