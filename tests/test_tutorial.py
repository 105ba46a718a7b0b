"""The tutorial does what it says: its files are written, its commands run,
and they print what it shows, no more and no less.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "tutorial" / "README.md").read_text()
STEP = re.compile(r"(?:\*\*(?P<file>[\w./-]+)\*\*\n\n)?```(?P<kind>\w+)\n(?P<text>.*?)```", re.DOTALL)


def expected(line: str) -> str:
    """A line of the page as a pattern: `…` stands for what differs from run to run."""
    return ".*".join(re.escape(part) for part in line.split("…"))


def assert_shown(shown: list[str], printed: list[str]) -> None:
    """Each line of the page was printed, and each printed line is on the page, unless `⋮` leaves some out."""
    rest = list(printed)
    for line in shown:
        if line != "⋮":
            found = next((one for one in rest if re.fullmatch(expected(line), one)), None)
            assert found is not None, f"the page shows {line!r}, but there was\n" + "\n".join(printed)
            rest.remove(found)
    assert "⋮" in shown or rest == [], "the page leaves out\n" + "\n".join(rest)


@pytest.mark.slow
def test_every_step_does_what_the_page_says(tmp_path: Path) -> None:
    follow_page(tmp_path, Path(sys.executable).parent, os.environ)


def follow_page(folder: Path, programs: Path, environment: Mapping[str, str]) -> None:
    """Writes the files of the page, types its commands, and compares what is printed."""
    tools = f"{programs}{os.pathsep}{environment['PATH']}"
    printed, shown, ran = "", 0, 0
    for step in STEP.finditer(PAGE):
        file, kind, text = step["file"], step["kind"], step["text"]
        if file:
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text)
        elif kind == "sh":
            printed = ""
            for command in text.splitlines():
                if command == "pip install ~/millrace pytest":
                    continue  # they are, in the environment of this test
                done = subprocess.run(
                    command,
                    shell=True,
                    cwd=folder,
                    env={**environment, "PATH": tools},
                    capture_output=True,
                    text=True,
                    timeout=300,
                )
                printed += done.stdout + done.stderr
                assert done.returncode == 0, f"{command}\n{printed}"
                ran += 1
        else:
            assert kind == "text", f"a block of {kind} is neither a file nor run"
            assert_shown(text.splitlines(), printed.splitlines())
            shown += len(text.splitlines())
    assert (ran, shown) == (12, 28)
