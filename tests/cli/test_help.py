"""Lists of commands fit a terminal of 80 columns, and end in a sentence."""

import pytest

from millrace.cli import main


@pytest.mark.parametrize("group", ["", "ingest", "topics", "bench", "kafka", "sink"])
def test_no_summary_is_cut_off_or_wrapped(
    group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main.main([*filter(None, [group]), "--help"]) == 0
    commands = capsys.readouterr().out.partition("Commands:\n")[2].split("\n\n")[0].splitlines()
    assert commands
    assert [line for line in commands if not line.endswith(".") or line.endswith("...")] == []
    assert [line for line in commands if line.startswith("   ")] == []
