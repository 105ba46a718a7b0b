"""The picture in characters, as a terminal shows it."""

from pathlib import Path

import pytest

from devtools.timeline.games import GAME, scores, totals
from millrace import windows
from millrace.cli.main import main
from millrace.devtools.timeline import record, to_text
from millrace.devtools.timeline.text import strip_styles

DRAWN = """\
totals → analytics.totals, red
processing ↓ event time →
             ╷0s                 ╷10s                ╷20s
         4s        ● ·
       9.5s    ┃               ●·
        14s                ┃           ● ·
             ├──────────────────┤  ┃                    12  [0s, 10s) on time
        15s              ◐         ┃       ·
             ├──────────────────┤  ┃                    16  [0s, 10s) late
        19s                        ┃             ● ·
        20s      ×                           ┃       ·
    the end
                                 ├──────────────────┤   10  [10s, 20s) on time
● event  ◐ behind the watermark  × refused  · ideal  ┃ watermark  ├─┤ pane: its window, value and timing"""


def test_a_small_run_is_drawn_like_this() -> None:
    assert strip_styles(to_text(record(totals(), GAME, key="red"), width=84)) == DRAWN


def test_events_in_one_place_are_counted() -> None:
    crowd = scores(*[("red", 1, 1_000, 1_000)] * 3, *[("red", 1, 9_000, 9_000)] * 12)
    rows = strip_styles(to_text(record(totals(), crowd))).splitlines()
    assert rows[3].split()[:2] == ["1s", "3"]
    assert rows[4].rstrip().endswith("+")


@pytest.mark.slow
def test_a_long_run_is_drawn_in_few_rows_and_says_what_it_leaves_out() -> None:
    long = scores(*[("red", 1, at, at) for at in range(0, 600_000, 700)])
    drawn = strip_styles(to_text(record(totals(windows.sliding("10s", every="1s")), long)))
    assert "more windows" in drawn
    assert sum(line.lstrip()[:1].isdigit() for line in drawn.splitlines()) <= 50


def test_every_timing_has_its_colour_and_plain_text_has_none() -> None:
    styles = {
        style
        for line in to_text(record(totals(), GAME, key="red"))
        for text, style in line
        if text.strip() in ("12", "16")
    }
    assert styles == {"green", "yellow"}


def test_the_command_draws_in_text_and_as_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, picture = tmp_path / "game.csv", tmp_path / "game.svg"
    GAME.write_csv(table)
    spec = f"{Path(__file__).parent / 'games.py'}:totals"
    asked = ["explain", spec, "--timeline", "--events", str(table), "--key", "red"]
    assert main(asked) == 0
    assert "16  [0s, 10s) late" in capsys.readouterr().out
    assert main([*asked, "--svg", str(picture)]) == 0
    assert capsys.readouterr().out == f"6 events and 3 panes in {picture}\n"
    assert "<svg" in picture.read_text()


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = f"{Path(__file__).parent / 'games.py'}:totals"
    assert main(["explain", spec, "--timeline"]) == 2
    assert "exactly one of --recording, --topic and --events" in capsys.readouterr().err
    assert main(["explain", spec, "--key", "red"]) == 2
    assert "--timeline" in capsys.readouterr().err
    GAME.write_csv(tmp_path / "game.csv")
    assert (
        main(
            ["explain", spec, "--timeline", "--events", str(tmp_path / "game.csv"), "--svg", "/nowhere/x.svg"]
        )
        == 1
    )
    assert "cannot be written" in capsys.readouterr().err
