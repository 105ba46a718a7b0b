"""Each internal column is declared once, in `values/columns.py`, and has one meaning."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "millrace"
COLUMNS = PACKAGE / "values" / "columns.py"
SOURCES = sorted(
    path for path in PACKAGE.rglob("*.py") if path != COLUMNS and not path.name.endswith("_pb2.py")
)
COLUMN = re.compile(r"_[a-z][a-z0-9_]*")


def find_columns(tree: ast.Module) -> Iterator[ast.Constant]:
    """Strings that look like internal columns, but for the names of attributes in `__slots__`."""
    slots = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "__slots__" for target in node.targets)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_attribute = id(node) in slots
            if COLUMN.fullmatch(node.value) and not is_attribute:
                yield node


def undeclared(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    found = [f"{path.name}:{node.lineno} {node.value!r}" for node in find_columns(tree)]
    return found + [
        f"{path.name}:{node.value.lineno} {node.arg}="
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg and COLUMN.fullmatch(node.arg)
    ]


def declared() -> dict[str, ast.Assign]:
    tree = ast.parse(COLUMNS.read_text())
    return {ast.unparse(node.targets[0]): node for node in tree.body if isinstance(node, ast.Assign)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_other_module_writes_the_name_of_an_internal_column(path: Path) -> None:
    assert not undeclared(path), "declare it in values/columns.py, with its meaning, and use the constant"


def test_no_two_constants_have_the_same_name() -> None:
    names = Counter(node.value.value for node in declared().values() if isinstance(node.value, ast.Constant))
    assert len(names) > 50
    assert [name for name, count in names.items() if count > 1] == []


def test_every_column_says_what_it_means() -> None:
    body = ast.parse(COLUMNS.read_text()).body
    without = [
        ast.unparse(node)
        for node, following in zip(body, [*body[1:], None], strict=True)
        if isinstance(node, ast.Assign)
        and not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant))
    ]
    assert without == []


def test_every_column_is_used() -> None:
    used = {
        node.id
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name)
    }
    assert {name for name in declared() if name not in used} == set()


def test_a_column_written_as_a_string_is_found(tmp_path: Path) -> None:
    path = tmp_path / "operator.py"
    path.write_text('frame.select("_clock", pl.col("value")).with_columns(_part=1)\n')
    assert undeclared(path) == ["operator.py:1 '_clock'", "operator.py:1 _part="]
