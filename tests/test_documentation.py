"""README, ARCHITECTURE and the generated reference say what the program does:
outputs are compared, paths and links exist.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace
from bench.events import fill_log, make_positions
from millrace.cli.commands import reference
from millrace.devtools.demo.options import DemoOptions
from millrace.geo import geocell
from millrace.log import open_log
from millrace.transit.jobs.emergency_stop import hard_stop

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "millrace"
README, ARCHITECTURE = (ROOT / "README.md").read_text(), (ROOT / "ARCHITECTURE.md").read_text()


@pytest.mark.parametrize("name", ["cli.md", "millrace.toml"])
def test_the_reference_is_fresh(name: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == reference.build_pages()[name], (
        "run `make docs`"
    )


@pytest.mark.slow
def test_the_readme_shows_what_its_command_prints() -> None:
    [console] = [
        block
        for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
        if "millrace replay" in block
    ]
    command, *shown = console.partition("$ .venv/bin/millrace ")[2].splitlines()
    run = subprocess.run(
        [sys.executable, "-m", "millrace.cli.main", *command.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(line.split() for line in run.stdout.splitlines()) == sorted(line.split() for line in shown)


@pytest.mark.slow
def test_every_command_of_the_readme_runs(tmp_path: Path) -> None:
    """Those that do not end by themselves are stopped when they are at work."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = re.findall(r"^\$ \.venv/bin/millrace (.*)$", README, re.MULTILINE)
    at_work = {
        "ingest simulator": "events/s|written",
        "run vehicle-distribution": "events in",
        "serve": "serving",
    }
    assert len(commands) == 4 + len(at_work)
    for command in commands:
        words = [sys.executable, "-m", "millrace.cli.main", *command.split()]
        if command not in at_work:
            run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert run.returncode == 0, f"{command}: {run.stderr}"
            continue
        with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr is not None
            lines = iter(running.stderr)
            assert next((line for line in lines if re.search(at_work[command], line)), None), command
            running.terminate()
            assert running.wait(timeout=60) in (130, -signal.SIGTERM)


def test_the_readme_shows_its_example_whole() -> None:
    shown, _ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert (ROOT / "examples" / "busy_cells.py").read_text().endswith(f'"""\n\n{shown}')


def test_the_readmes_pattern_is_that_of_the_job() -> None:
    _, shown = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {"mr": millrace}
    exec(shown, names)
    assert str(names["hard_stop"]) == str(hard_stop())


@pytest.mark.slow
def test_the_readmes_example_answers_from_the_events_of_the_demo(tmp_path: Path) -> None:
    log = open_log(f"embedded:{tmp_path / DemoOptions().folder / 'spark' / 'log'}")
    seen = make_positions(90, vehicles=40)
    fill_log(log, seen)
    log.close()
    run = subprocess.run(
        [sys.executable, ROOT / "examples" / "busy_cells.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    counts = [int(row.split("┆")[1]) for row in run.stdout.splitlines() if row.startswith("│ 6")]
    cells = seen.select("vehicle_id", geocell=geocell(), minute=pl.col("event_time") // 60_000).drop_nulls()
    expected = (
        cells.group_by("geocell", "minute")
        .agg(pl.col("vehicle_id").n_unique())["vehicle_id"]
        .sort(descending=True)
    )
    assert counts == expected.head(5).to_list()


@pytest.mark.parametrize(
    ("page", "least"), [("README.md", 20), ("ARCHITECTURE.md", 1), ("CONTRIBUTING.md", 0)]
)
def test_links_and_paths_of_a_page_at_the_root_exist(page: str, least: int) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"\]\(([\w./-]+)\)", text)) | set(
        re.findall(r"`((?:docs|examples|tests|src)/[\w./-]+)", text)
    )
    assert len(named) >= least
    assert {path for path in named if not (ROOT / path.partition("::")[0]).exists()} == set()


def test_the_program_of_the_readme_is_short() -> None:
    shown, _ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(shown.splitlines()) <= 12


def test_the_paths_of_the_glossary_exist() -> None:
    named = set(re.findall(r"`([\w/.]+/[\w/.]+|\w+\.py)`", (ROOT / "docs/reference/glossary.md").read_text()))
    assert len(named) > 40
    assert {path for path in named if not any((base / path).exists() for base in (ROOT, PACKAGE))} == set()


def test_a_bare_make_lists_every_recipe() -> None:
    makefile = (ROOT / "Makefile").read_text()
    listed = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split()
    assert [line.split()[1] for line in listed.splitlines()] == phony


def test_the_life_of_one_event_names_functions_of_its_files() -> None:
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+`) \| `([\w/.]+\.py)` \|$", ARCHITECTURE, re.MULTILINE)
    steps = [(name, file) for names, file in rows for name in re.findall(r"`([\w.]+)`", names)]
    assert len(steps) > 15
    missing = [
        (name, file)
        for name, file in steps
        for part in name.split(".")
        if not re.search(rf"\b(?:def|class) {part}\b", (PACKAGE / file).read_text())
    ]
    assert missing == []
