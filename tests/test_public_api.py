"""The names that users import: adding one is a decision, removing one breaks them."""

import subprocess
import sys

import pytest

import millrace


def test_the_package_exports_these_names_and_no_others() -> None:
    assert millrace.__all__ == [
        "Context",
        "Job",
        "Keyed",
        "Processor",
        "Stream",
        "Table",
        "Topic",
        "__version__",
        "aggregates",
        "backfill",
        "evictors",
        "feed_back",
        "frames",
        "from_dataframe",
        "match_recognize",
        "pattern",
        "patterns",
        "read",
        "replay",
        "run",
        "sql",
        "state",
        "table",
        "testing",
        "triggers",
        "watermarks",
        "windows",
    ]


@pytest.mark.parametrize("name", millrace.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(millrace, name) is not None


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Windows'; it has Context, Job, "):
        _ = millrace.Windows  # type: ignore[attr-defined]  # a type checker knows it, too


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "{'polars', 'pyarrow', 'pyspark', 'typer', 'millrace.runners'} & set(sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", f"import sys, millrace; print({heavy})"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "set()"


def test_defining_a_job_loads_no_runner() -> None:
    runner = (
        "[m for m in sys.modules if m.startswith(('millrace.runners', 'millrace.engine', "
        "'millrace.log', 'pyspark'))]"
    )
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; from millrace import Job, read; print({runner})"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "[]"
