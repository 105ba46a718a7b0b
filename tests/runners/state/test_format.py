"""State of another format is refused with one message, on both runners, and nothing of it is changed.

`fixtures/format-1.tar.gz` was written by the last version with format 1: the state folders of a local run and
of one on Spark (`local/run`, `spark/run`), and a savepoint of the first (`totals.savepoint`), each after one
batch of a windowed sum.
"""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Literal

import pytest

import millrace as mr
from millrace.cli.main import main
from millrace.config import Settings
from millrace.errors import StateMismatch
from millrace.log import open_log
from millrace.runners.backfill import backfill
from millrace.runners.state.checkpoint import Checkpoint
from millrace.runners.state.folder import (
    STATE_FORMAT,
    check_checkpoints,
    decode_checked,
    encode_checked,
    lock_folder,
    mark_checkpoint,
)
from millrace.runners.state.savepoint import load_savepoint, save
from runners.local_child import READINGS, settings, totals

FIXTURES = Path(__file__).parent / "fixtures/format-1.tar.gz"
REFUSAL = (
    r"state folder .*/run was written by an earlier version of millrace \(format 1; this version reads "
    r"format 2\), .*let that version finish the run, or begin anew .* --take-over.* backfill"
)
Runner = Literal["local", "spark"]
RUNNERS = ["local", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The fixtures, unpacked."""
    with tarfile.open(FIXTURES) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def settings_of(old: Path, runner: Runner) -> Settings:
    chosen = settings(f"embedded:{old}/log", str(old / runner), run_name="run", run_on=runner)
    open_log(chosen.log.url).ensure(READINGS)
    return chosen


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name != "lock"
    }


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_state_folder_of_an_earlier_version_is_refused_and_left_as_it_was(
    old: Path, runner: Runner
) -> None:
    before = contents(old / runner)
    with pytest.raises(StateMismatch, match=REFUSAL):
        mr.run(totals(), settings=settings_of(old, runner), until_caught_up=True)
    with pytest.raises(StateMismatch, match=REFUSAL):
        mr.run(totals(), settings=settings_of(old, runner), until_caught_up=True, reset=["totals"])
    assert contents(old / runner) == before


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("command", ["run", "savepoint"])
def test_commands_refuse_it_in_one_line(
    old: Path, capsys: pytest.CaptureFixture[str], runner: Runner, command: str
) -> None:
    chosen = settings_of(old, runner)
    options = ["--state", str(chosen.state.dir), "--name", "run"]
    job = f"{Path(__file__).parents[1] / 'local_child.py'}:JOB"
    words = {
        "run": ["run", job, "--on", runner, "--log", chosen.log.url, *options],
        "savepoint": ["savepoint", str(old / "new.savepoint"), *options],
    }
    assert main(words[command]) == 1
    [line] = [line for line in capsys.readouterr().err.splitlines() if "format 1" in line]
    assert "let that version finish the run" in line
    assert not (old / "new.savepoint").exists()


def test_what_the_message_says_works(old: Path) -> None:
    chosen = settings_of(old, "local")
    mr.run(totals(), settings=chosen.with_options(state_dir=old / "owner"), until_caught_up=True)
    other = chosen.with_options(state_dir=old / "other")
    with pytest.raises(StateMismatch, match="take-over"):
        mr.run(totals(), settings=other, until_caught_up=True)
    mr.run(totals(), settings=other, until_caught_up=True, take_over=True)
    assert backfill(totals(), version="v2", settings=other).switched


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_savepoint_of_an_earlier_version_is_refused(old: Path, runner: Runner) -> None:
    chosen = settings_of(old, runner).with_options(state_dir=old / "new")
    with pytest.raises(
        StateMismatch, match=r"savepoint .*totals\.savepoint was written by an earlier version .*format 1"
    ):
        mr.run(totals(), settings=chosen, until_caught_up=True, restore=old / "totals.savepoint")
    assert not (old / "new/run/identity.json").exists()


def test_verify_names_state_of_an_earlier_version(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_log(f"embedded:{old}/log").close()
    assert main(["verify", "--log", f"embedded:{old}/log", "--state", str(old / "local"), "--json"]) == 1
    [damage] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "format 1" in damage["problem"]


def test_a_folder_of_a_later_version_is_refused(old: Path) -> None:
    chosen = settings_of(old, "local")
    identity = old / "local/run/identity.json"
    fields = decode_checked(identity.read_bytes())
    identity.write_bytes(encode_checked({**fields, "format": STATE_FORMAT + 1}))
    with pytest.raises(StateMismatch, match=r"by a later version of millrace \(format 3; this version reads"):
        mr.run(totals(), settings=chosen, until_caught_up=True)


def test_a_database_of_an_earlier_version_is_refused_where_the_identity_was_lost(old: Path) -> None:
    (old / "local/run/identity.json").unlink()
    with pytest.raises(StateMismatch, match=REFUSAL):
        mr.run(totals(), settings=settings_of(old, "local"), until_caught_up=True)


@pytest.mark.spark
def test_a_checkpoint_of_an_earlier_version_is_refused_where_the_identity_was_lost(old: Path) -> None:
    (old / "spark/run/identity.json").unlink()
    with pytest.raises(StateMismatch, match=REFUSAL):
        mr.run(totals(), settings=settings_of(old, "spark"), until_caught_up=True)


def test_a_checkpoint_is_marked_before_spark_begins_it(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint-7"
    mark_checkpoint(checkpoint)
    (checkpoint / "metadata").touch()
    check_checkpoints(tmp_path)
    (checkpoint / "millrace-format").unlink()
    mark_checkpoint(checkpoint)  # too late: Spark has begun it, and who knows with what
    with pytest.raises(StateMismatch, match="format 1"):
        check_checkpoints(tmp_path)


def test_all_that_a_local_run_writes_carries_the_format(old: Path) -> None:
    chosen = settings_of(old, "local").with_options(state_dir=old / "new")
    mr.run(totals(), settings=chosen, until_caught_up=True)
    with lock_folder(old / "new/run") as folder:
        assert decode_checked((folder.path / "identity.json").read_bytes())["format"] == STATE_FORMAT
        save(folder, old / "new.savepoint")
    assert load_savepoint(old / "new.savepoint").identity.jobs == ("totals",)
    shutil.copy(old / "new/run/local.db", old / "local/run/local.db")
    (old / "local/run/identity.json").unlink()
    with lock_folder(old / "local/run") as folder:
        from millrace.engine.plan import Plan

        Checkpoint(folder, Plan.of([totals()], slots=1))
