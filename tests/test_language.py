"""Code, messages and pages are plain English in the field's words:
names and phrases of a private dialect do not come back.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

BANNED_WORDS = frozenset(
    {"said", "told", "mine", "whoever", "hulls", "walked", "low0", "patience", "speaking"}
)
"""Not part of any name in snake case."""

BANNED_NAMES = frozenset({"what", "go", "come", "way"})
"""Not a name by themselves."""

BANNED_TYPES = frozenset(
    {
        "Course",
        "Courses",
        "Desk",
        "Feed",
        "Hidden",
        "Hold",
        "Line",
        "Piece",
        "Place",
        "Reach",
        "Said",
        "Share",
        "Shipped",
        "Told",
        "Wishes",
    }
)
"""Not a class or its use: `PartitionBatch`, not `Piece`."""

_IS_NO = r"(?<!there )\b(?:is|are) no (?!longer\b|more\b|other\b|such\b)[a-z]+"

BANNED_PHRASES = re.compile(rf"\b(?:said|told(?! apart)|whoever)\b|{_IS_NO}", re.IGNORECASE)
"""Not in docstrings or pages: say who does what, and "is not a duration" instead of "is no duration"."""

BANNED_IN_MESSAGES = re.compile(_IS_NO, re.IGNORECASE)

CODE = [
    path
    for folder in ("src", "bench", "tests", "docs", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.name.endswith("_pb2.py")
]
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)


@dataclass(frozen=True)
class Offence:
    """A word that is not ours, and where it stands."""

    path: Path
    line: int
    word: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.word}"


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that the code binds or uses, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield node.lineno, name
            case ast.FunctionDef(name=name) if name.startswith("test_"):
                pass  # a test's name is a sentence
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.alias(name=name, asname=alias):
                yield node.lineno, alias or name.rpartition(".")[2]


def is_banned(name: str) -> bool:
    plain = name.strip("_")
    return (
        plain in BANNED_TYPES
        or plain in BANNED_NAMES
        or not BANNED_WORDS.isdisjoint(plain.lower().split("_"))
    )


def banned_names(path: Path) -> list[Offence]:
    return [
        Offence(path, line, name) for line, name in names_in(ast.parse(path.read_text())) if is_banned(name)
    ]


def docstrings_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Strings that stand alone: docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page outside of its code, and of a module's docstrings."""
    if path.suffix == ".py":
        for first, text in docstrings_in(ast.parse(path.read_text())):
            yield from ((first + i, line) for i, line in enumerate(text.splitlines()))
        return
    is_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith("    "):
            yield number, re.sub(r"`[^`]*`", "", line)


def banned_phrases(path: Path) -> list[Offence]:
    return [
        Offence(path, line, match[0])
        for line, text in prose_of(path)
        for match in BANNED_PHRASES.finditer(text)
    ]


def messages_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings of `raise` statements."""
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Raise):
            for node in ast.walk(statement):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.lineno, node.value


def banned_messages(path: Path) -> list[Offence]:
    return [
        Offence(path, line, match[0])
        for line, text in messages_in(ast.parse(path.read_text()))
        for match in BANNED_IN_MESSAGES.finditer(text)
    ]


@pytest.mark.parametrize(
    ("find", "paths"),
    [
        (banned_names, CODE),
        (banned_phrases, [*CODE, *PAGES]),
        (banned_messages, CODE),
    ],
)
def test_the_language_is_plain(find: Callable[[Path], list[Offence]], paths: list[Path]) -> None:
    checked = [path for path in paths if path != Path(__file__)]
    assert len(checked) > 50
    offences = [offence for path in checked for offence in find(path)]
    assert not offences, "use the field's words:\n" + "\n".join(map(str, offences))


def test_dialect_is_found() -> None:
    tree = ast.parse("def _said(what):\n    raise E(f'{what} is no duration')")
    assert [name for _, name in names_in(tree) if is_banned(name)] == ["_said", "what", "what"]
    assert [bool(BANNED_IN_MESSAGES.search(text)) for _, text in messages_in(tree)] == [True]
    assert not BANNED_PHRASES.search("There is no topic; it is no longer told apart.")
    assert BANNED_PHRASES.findall("Whoever is told.") == ["Whoever", "told"]
