"""What a type checker and a completion see of the installed package: every public name, with a type."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import millrace as mr

PROGRAM = Path(__file__).with_name("user_program.py")
STRICT = ("--strict", "--disallow-any-expr", "--python-version", "3.11")
VOCABULARIES = ("aggregates", "evictors", "patterns", "state", "triggers", "watermarks", "windows")


def check_types(program: Path, folder: Path) -> str:
    """What mypy finds in a user's program, away from this checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *STRICT, "--cache-dir", str(folder / "cache"), str(program)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_users_program_has_types_everywhere_and_any_nowhere(tmp_path: Path) -> None:
    copy = tmp_path / "program.py"
    copy.write_text(PROGRAM.read_text())
    assert check_types(copy, tmp_path) == "Success: no issues found in 1 source file\n"
    copy.write_text(
        "import millrace as mr\n"
        "from millrace import state, testing\n\n"
        "mr.reed\n"
        "testing.Skript\n\n"
        "class Counter(mr.Processor):\n"
        "    count = state.value(0)\n\n"
        "    def process(self, row: dict[str, object], ctx: mr.Context) -> None:\n"
        "        self.count = 'one'\n"
        "        ctx.set_timer('t', 0, time='clock')\n"
    )
    found = check_types(copy, tmp_path)
    for line, error in ((4, "attr-defined"), (5, "attr-defined"), (11, "assignment"), (12, "arg-type")):
        assert any(f":{line}: error" in text and error in text for text in found.splitlines()), found


def test_the_users_program_can_be_loaded() -> None:
    spec = importlib.util.spec_from_file_location("user_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    assert module.job.name == "totals"


@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_users_program_uses_every_word(name: str) -> None:
    text = PROGRAM.read_text()
    missing = [word for word in dir(getattr(mr, name)) if f"{name}.{word}" not in text]
    assert missing == []


def test_the_users_program_uses_every_exported_name() -> None:
    text = PROGRAM.read_text()
    missing = [
        word
        for word in mr.__all__
        if f"mr.{word}" not in text and f"import {word}" not in text and f", {word}" not in text
    ]
    assert missing == []


def test_completion_shows_the_vocabulary_and_nothing_else() -> None:
    assert dir(mr) == mr.__all__
    assert len(mr.__all__) <= 30
    assert {"fixed", "global_window", "WindowFn"} <= {*dir(mr.windows)}
    for module in (getattr(mr, name) for name in VOCABULARIES):
        shown = {*dir(module)}
        assert shown <= {*module.__all__}, module.__name__
        assert not {"pl", "Any", "DefinitionError", "explain_errors_of"} & shown
