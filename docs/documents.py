"""The pages that show what commands print: `python docs/documents.py` writes that and their pictures anew,
and a test compares.

A block of a page begins with `$ millrace …`; what follows is what the command prints. Where the command
writes a picture, the picture is beside the page. Patterns are drawn by `pattern_pictures.py`.
"""

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pattern_pictures import pictures

from millrace.cli.main import main

DOCS = Path(__file__).parent
PAGES = sorted(DOCS.glob("concepts/*.md")) + sorted(DOCS.glob("how-to/*.md"))


@dataclass(frozen=True)
class Command:
    """What a page says to type, and what it says will be printed."""

    page: Path
    typed: str
    shown: str

    @property
    def words(self) -> list[str]:
        """As a shell would divide it."""
        return shlex.split(self.typed.replace("\\\n", " "))

    @property
    def picture(self) -> Path | None:
        """The file it writes."""
        return DOCS.parent / self.words[self.words.index("--svg") + 1] if "--svg" in self.words else None

    def run(self, svg: Path | None = None) -> str:
        """What it really prints; `svg`: where the picture goes instead."""
        words = self.words
        if svg is not None:
            words[words.index("--svg") + 1] = str(svg)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(DOCS.parent):
            code = main(words)
        if code != 0:
            raise RuntimeError(f"{self.page.name}: `millrace {shlex.join(words)}` ends with {code}")
        return printed.getvalue()


def commands(page: Path) -> Iterator[Command]:
    """The commands of a page, in order."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for typed, shown in re.findall(
            r"^\$ millrace (.*?[^\\])\n(.*?)(?=^\$ |\Z)", block, re.DOTALL | re.MULTILINE
        ):
            yield Command(page, typed, shown)


def refresh(page: Path) -> None:
    """Runs what a page says to type, and writes down what it prints."""
    text = page.read_text(encoding="utf-8")
    for command in commands(page):
        before = f"$ millrace {command.typed}\n{command.shown}```"
        text = text.replace(before, f"$ millrace {command.typed}\n{command.run()}```")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    os.environ["POLARS_MAX_THREADS"] = "1"
    for page in PAGES:
        refresh(page)
    for file, picture in pictures().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(picture, encoding="utf-8")
