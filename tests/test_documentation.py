"""What is written down is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.commands import reference

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", ["cli.md", "millrace.toml"])
def test_the_reference_is_fresh(name: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == reference.pages()[name], "run `make docs`"


def test_the_readme_shows_what_its_command_prints() -> None:
    console = re.findall(r"```console\n(.*?)```", README, re.DOTALL)[0]
    command, *shown = console.partition("$ .venv/bin/millrace ")[2].splitlines()
    run = subprocess.run([sys.executable, "-m", "millrace.cli", *command.split()], cwd=ROOT, capture_output=True, text=True, check=True)
    assert sorted(line.split() for line in run.stdout.splitlines()) == sorted(line.split() for line in shown)


def test_the_readme_quotes_its_example() -> None:
    quoted = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(quoted) == 1
    assert quoted[0] in (ROOT / "examples" / "words.py").read_text()


def test_a_bare_make_lists_every_recipe() -> None:
    makefile = (ROOT / "Makefile").read_text()
    listed = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split()
    assert [line.split()[1] for line in listed.splitlines()] == phony
