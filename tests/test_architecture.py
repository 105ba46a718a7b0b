"""Data goes one way, ingest → log → runner (engine) → log → serve, and an import never points against it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "millrace"
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if not path.name.endswith("_pb2.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

VOCABULARY = {
    "aggregates",
    "durations",
    "errors",
    "evictors",
    "frames",
    "geo",
    "graph",
    "keyed",
    "lookups",
    "panes",
    "patterns",
    "processors",
    "state",
    "stream",
    "timestamps",
    "topics",
    "triggers",
    "values",
    "views",
    "watermarks",
    "windows",
}
"""The modules with which jobs are written: they know nothing but each other."""

RECORDS = {"log.codecs", "log.contract", "log.dead_letters"}
"""What a record looks like, without the log that keeps it."""

ALLOWED: dict[str, set[str]] = {
    "": {"runners", "testing"},
    **{module: set() for module in VOCABULARY},
    "stream": {"runners.spark.dataframes"},  # Job.to_dataframe hands over to it
    "config": set(),
    "log": {"config"},
    "engine": RECORDS,
    "ingest": {"config", "log", "transit.topics", "transit.events_pb2"},
    "runners": {"config", "engine", "log", "testing"},
    "serve": {"log"},
    "sinks": {"log"},
    "transit": set(),
    "testing": {"engine", "runners", *RECORDS},
    "devtools": {"engine", "ingest", "log", "runners", "serve", "testing", "transit"},
    "cli": {
        "",
        "config",
        "devtools",
        "engine",
        "ingest",
        "log",
        "runners",
        "serve",
        "sinks",
        "testing",
        "transit",
    },
}
"""What each part may import besides itself and the vocabulary.
Each line is a decision: think before adding to one.
"""


def name_of(path: Path) -> str:
    """`log.codecs` for src/millrace/log/codecs/codec.py."""
    return (
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")
    )


def is_module(name: str) -> bool:
    place = PACKAGE.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").exists() or name.endswith("_pb2")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                own = inner.startswith("millrace.") and is_module(inner.removeprefix("millrace."))
                yield inner if own else node.module or ""


def own_imports(path: Path) -> set[str]:
    return {
        found.removeprefix("millrace").removeprefix(".")
        for found in imports(path)
        if found.partition(".")[0] == "millrace"
    }


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_follow_the_data(path: Path) -> None:
    part = name_of(path).partition(".")[0]
    assert part in ALLOWED, f"{path} belongs to no part that ALLOWED knows"
    allowed = {part, *VOCABULARY, *ALLOWED[part]}
    against = {
        found
        for found in own_imports(path)
        if not any(found == one or (one and found.startswith(f"{one}.")) for one in allowed)
    }
    assert not against, f"{path} must not import {', '.join(sorted(against))}"


def test_pyspark_is_imported_by_the_spark_runner_alone() -> None:
    importers = {
        path
        for path in SOURCES
        if any(found.partition(".")[0] in ("pyspark", "py4j") for found in imports(path))
    }
    assert importers
    assert {path for path in importers if not path.is_relative_to(PACKAGE / "runners" / "spark")} == set()


FORBIDDEN_FOR_THE_MODEL = (
    "engine",
    "runners",
    "patterns.cep",
    *(f"patterns.sql.{module}" for module in ("compiled", "matcher", "program", "search", "streams")),
)
"""What the model is the specification of. Code that both used could not be caught by comparing them."""


@pytest.mark.parametrize("path", sorted((PACKAGE / "testing" / "model").glob("*.py")), ids=name_of)
def test_the_model_shares_no_code_with_what_it_specifies(path: Path) -> None:
    shared = {
        found
        for found in own_imports(path)
        if any(found == one or found.startswith(f"{one}.") for one in FORBIDDEN_FOR_THE_MODEL)
    }
    assert not shared, f"{path} must not import {', '.join(sorted(shared))}; write it anew, in plain Python"


def test_the_engine_knows_no_clock() -> None:
    for path in (PACKAGE / "engine").rglob("*.py"):
        assert not {"time", "datetime"} & set(imports(path)), f"{path}: time is an argument"


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    assert path.read_text().count("\n") <= 450, f"{path.relative_to(ROOT)}: which two things does it hold?"


def test_the_paths_that_the_architecture_names_exist() -> None:
    named = {
        word for word in re.findall(r"`([\w./-]+)`", (ROOT / "ARCHITECTURE.md").read_text()) if "/" in word
    }
    assert len(named) > 10
    assert {word for word in named if not any((base / word).exists() for base in (ROOT, PACKAGE))} == set()


def test_the_architecture_has_a_section_for_each_folder() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert {folder for folder in folders if f"## `{folder}/`" not in text} == set()


def test_the_tests_that_the_readme_names_exist() -> None:
    named = set(re.findall(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`", (ROOT / "README.md").read_text()))
    assert named
    for path, test in named:
        assert (ROOT / path).is_file(), path
        assert not test or f"def {test}(" in (ROOT / path).read_text(), f"{path} has no {test}"


def test_the_lock_names_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "--hash=sha256:" in lock
    assert not re.search(r"https?://|file:|--index|--find-links|(^|\s)/", lock)
