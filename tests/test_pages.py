"""The pages of docs/concepts and docs/how-to: what they show is what happens,
and every snippet is from a program that runs.
"""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import millrace as mr
from millrace.keyed import Keyed
from millrace.testing import Script

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))

from documents import PAGES, Command, commands  # noqa: E402 - beside the pages, as `make docs` runs it
from pattern_pictures import pictures  # noqa: E402

COMMANDS = [command for page in PAGES for command in commands(page)]
EXAMPLES = "\n".join(path.read_text() for path in sorted((DOCS / "examples").glob("*.py")))
ALL_PAGES = sorted(DOCS.rglob("*.md"))
OWN_TEST = {"ingest.md"}
"""Pages whose snippets a test of their own runs (tests/ingest/test_how_to.py)."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda command: f"{command.page.stem} {command.words[1].rpartition(':')[2]}"
)
def test_a_page_shows_what_its_command_does(command: Command, tmp_path: Path) -> None:
    if command.picture is None:
        assert command.run() == command.shown, "run `make docs`"
        return
    drawn = tmp_path / "drawn.svg"
    printed = command.run(svg=drawn).replace(str(drawn), command.words[command.words.index("--svg") + 1])
    assert printed == command.shown, "run `make docs`"
    assert drawn.read_text() == command.picture.read_text(), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_snippet_is_from_a_program_that_runs(page: Path) -> None:
    if page.name in OWN_TEST:
        return
    for snippet in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        assert snippet.rstrip("\n") in EXAMPLES, f"{page.name}: no program in docs/examples holds\n{snippet}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_safeguards_name_pages_and_tests_that_are_there() -> None:
    page = DOCS / "reference/safeguards.md"
    named = re.findall(r"`(tests/\S+\.py)`", page.read_text())
    assert len(named) >= 13
    assert [test for test in named if not (DOCS.parent / test).is_file()] == []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, place = target.partition("#")
        headings = re.findall(r"^#+ (.*)$", (page.parent / path).read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not place or place in anchors, target


def test_every_picture_is_on_a_page() -> None:
    shown = {
        page.parent / target
        for page in PAGES
        for target in re.findall(r"!\[[^]]*\]\((\S+\.svg)\)", page.read_text())
    }
    assert set(DOCS.glob("concepts/**/*.svg")) == shown
    assert {command.picture for command in COMMANDS if command.picture} | set(pictures()) == shown


def test_patterns_are_drawn_as_the_matcher_finds_them() -> None:
    for file, picture in pictures().items():
        assert file.read_text() == picture, f"{file.name}: run `make docs`"


@pytest.mark.slow
def test_the_unit_tests_of_the_examples_pass() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "test_scores.py",
        "test_score_triggers.py",
        "test_pattern_jobs.py",
        "test_rules.py",
        "test_sales.py",
    ]
    run = subprocess.run(command, cwd=DOCS / "examples", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert int(re.findall(r"(\d+) passed", run.stdout)[0]) >= 11


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:tests|src|docs|bench|examples)/[\w./-]+)`", page.read_text())
    links = [target for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()) if "://" not in target]
    assert [path for path in named if not (DOCS.parent / path).exists()] == []
    assert [target for target in links if not (page.parent / target).exists()] == []


MODULES = (
    "aggregates",
    "evictors",
    "frames",
    "patterns",
    "processors",
    "state",
    "testing",
    "triggers",
    "views",
    "watermarks",
    "windows",
)
CLASSES = ("Job", "Keyed", "Script", "Stream", "Topic")
NOT_API = {"state.get", *(f"{module}.{ending}" for module in MODULES for ending in ("py", "yaml", "md"))}
"""The state of a user's aggregate, and files."""


def names_in_code(text: str) -> set[tuple[str, str]]:
    """`windows.fixed` and the like, where a page shows code."""
    code = "\n".join(re.findall(r"`[^`\n]+`", text) + re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    prefixes = "|".join(("mr", *MODULES, *CLASSES))
    return set(re.findall(rf"(?<![\w./])({prefixes})\.([A-Za-z]\w*)", code))


@pytest.mark.parametrize(
    "page", [DOCS.parent / "README.md", *ALL_PAGES], ids=lambda page: str(page.relative_to(DOCS.parent))
)
def test_names_of_the_public_api_on_a_page_exist(page: Path) -> None:
    homes: dict[str, object] = {
        "mr": mr,
        **{name: importlib.import_module(f"millrace.{name}") for name in MODULES},
    }
    homes |= {"Job": mr.Job, "Keyed": Keyed, "Script": Script, "Stream": mr.Stream, "Topic": mr.Topic}
    missing = {
        f"{home}.{name}"
        for home, name in names_in_code(page.read_text())
        if not hasattr(homes[home], name) and f"{home}.{name}" not in NOT_API
    }
    assert missing == set()
