"""Commands used wrongly: an exit code, one line that names what is wrong and what to do, and no traceback."""

import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.cli import main
from wrong_uses.table import REMEDY, WrongUse, read_table
from wrong_uses.world import MODULES, START, write_files

ROWS = read_table(Path(__file__).with_name("commands.txt"))
WRONG_USAGE = 2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("world")
    write_files(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        for command in START:
            assert main.main(command.split()) == 0
    yield folder
    for module in MODULES:
        sys.modules.pop(module, None)


@pytest.fixture(autouse=True)
def inside(world: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(world)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.setenv("MILLRACE_KAFKA_WAIT", "1ms")
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def test_the_table_has_every_command() -> None:
    from typer.main import get_command

    from millrace.cli.commands import app

    commands = getattr(get_command(app), "commands")  # noqa: B009 - not an attribute of all commands
    assert {row.typed.split()[0] for row in ROWS} >= set(commands)
    assert len(ROWS) >= 100


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.typed)
def test_a_wrong_command_is_one_line_with_a_remedy_and_an_exit_code(
    row: WrongUse, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main.main(shlex.split(row.typed))
    printed = capsys.readouterr().err
    lines = printed.splitlines()
    message = lines[-1]
    assert "Traceback" not in printed
    assert code == (WRONG_USAGE if message.startswith("Error: ") else 1)
    assert sum(line.lower().startswith("error: ") for line in lines) == 1
    assert row.matches(message), f"the table has\n{row.message}\nbut there was\n{message}"
    assert REMEDY.search(message.partition(": ")[2])
