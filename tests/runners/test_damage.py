"""Bytes that are not those that were written are never read as data:
flipped bits in log, state and savepoints.
"""

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millrace as mr
from millrace import watermarks, windows
from millrace.cli.main import main
from millrace.config import Settings
from millrace.engine import stage
from millrace.engine.state import clear_cache
from millrace.errors import LogDamaged, MillraceError, StateUnreadable
from millrace.log import open_log
from millrace.log.codecs.codec import decode, encode
from millrace.log.embedded import chunks
from millrace.runners.local import run_local
from millrace.runners.spark.supervisor.failures import is_retryable
from millrace.runners.state.folder import lock_folder
from millrace.runners.state.savepoint import load_savepoint, save


@dataclass
class Event:
    key: str
    number: int


@dataclass
class Total:
    key: str
    total: int


EVENTS = mr.Topic("input.events", Event, key="key", partitions=1)
TOTALS = mr.Topic("analytics.totals", Total, key="key")


def totals() -> mr.Job:
    rows = mr.read(EVENTS, watermark=watermarks.bounded("1m"))
    return mr.Job(
        "totals", rows.window(windows.fixed("10s")).group_by("key").sum("number", name="total").write(TOTALS)
    )


class World:
    """A log, a state folder and a job that has done half of its work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings().with_options(
            log_url=f"embedded:{folder / 'log'}", state_dir=str(folder / "state"), run_name="test"
        )
        self.append(0)

    def append(self, start: int) -> None:
        log = open_log(self.settings)
        log.ensure(EVENTS)
        numbers = list(range(start, start + 400))
        rows = pl.DataFrame(
            {
                "key": [f"k{n % 7}" for n in numbers],
                "number": numbers,
                "event_time": [n * 250 for n in numbers],
            }
        )
        log.append(EVENTS.name, encode(EVENTS, rows, ingestion_time=10**12))
        log.close()

    def run(self) -> list[tuple[Any, ...]]:
        """Until caught up; all that was written."""
        stage.forget_state()
        clear_cache()
        run_local([totals()], settings=self.settings, until_caught_up=True)
        log = open_log(self.settings)
        try:
            parts = [
                decode(TOTALS, p, log.read(TOTALS.name, p, 0, end), panes=True).rows
                for p, end in log.end_offsets(TOTALS.name).items()
            ]
        finally:
            log.close()
        return pl.concat(parts).select("window_end", "key", "total", "index").sort(pl.all()).rows()

    def alter(self, file: str, sql: str) -> None:
        with sqlite3.connect(self.folder / file) as db:
            db.create_function("flip", 2, flipped)
            db.create_function(
                "flip_text", 2, lambda text, at: flipped(text.encode(), at).decode(errors="replace")
            )
            assert db.execute(sql).rowcount != 0
        db.close()


def flipped(body: bytes, at: int) -> bytes:
    """One bit of it the other way round."""
    made = bytearray(body)
    made[at % len(made)] ^= 1 << (at % 8)
    return bytes(made)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.run()
    made.append(400)
    return made


@pytest.mark.parametrize("at", [3, 21, 33, 1_200, 2_001, 5_000, 9_999])
def test_a_flipped_bit_in_a_chunk_of_the_log_is_named_and_not_read(world: World, at: int) -> None:
    world.alter("log/inputs.db", f"update chunk set body = flip(body, {at}) where base = 400")
    with pytest.raises(
        LogDamaged,
        match=r"inputs\.db is damaged at input\.events\[0\], offsets 400 to 800 .*restore .* from a backup",
    ) as raised:
        world.run()
    assert "\n" not in str(raised.value)
    assert not is_retryable(raised.value), "it is not tried again"


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("update chunks set data = flip(data, 777)", "digest"),
        ("update metas set meta = flip(meta, 60)", "description"),
        ("update facts set value = flip_text(value, 12) where name = 'committed'", "facts"),
        ("update facts set value = '7' where name = 'batch'", "facts"),
        ("delete from chunks", "not there"),
        ("update metas set slot = 3", "stages and slots"),
        ("update metas set stage = 0", "stages and slots"),
        ("delete from metas", "stages and slots"),
        ("update facts set name = 'chec' where name = 'check'", "facts"),
        ("update facts set value = cast(x'7bf4' as text) where name = 'committed'", "facts"),
        ("update metas set meta = 7", "description"),
    ],
    ids=[
        *("a chunk", "a description", "offsets", "the number of the batch", "a chunk that is gone"),
        *(
            "a slot",
            "a stage",
            "a description that is gone",
            "the checksum of the facts",
            "no text",
            "a number",
        ),
    ],
)
def test_a_flipped_bit_in_the_state_is_named_and_not_read(world: World, sql: str, part: str) -> None:
    world.alter("state/test/local.db", sql)
    with pytest.raises(StateUnreadable, match=rf"local\.db.* is damaged .*{part}.*--restore FILE") as raised:
        world.run()
    assert not is_retryable(raised.value)


@pytest.mark.parametrize(
    "sql",
    [
        'update partition set "end" = 768',
        'update partition set "end" = 400',
        'update partition set "end" = 801',
        "delete from chunk where base = 400",
        "update partition set number = 2",
    ],
    ids=[
        "a lower end",
        "an end where a chunk ends",
        "a higher end",
        "the last chunk",
        "the number of a partition",
    ],
)
def test_a_flipped_bit_in_how_far_a_partition_reaches_is_named_and_no_event_is_left_out(
    world: World, sql: str
) -> None:
    world.alter("log/inputs.db", sql)
    with pytest.raises(
        LogDamaged, match=r"inputs\.db is damaged at input\.events.*restore .* from a backup"
    ) as raised:
        world.run()
    assert not is_retryable(raised.value)
    with pytest.raises(LogDamaged, match=r"input\.events"):
        world.append(800)


@pytest.mark.parametrize(
    "sql",
    [
        "update writer set marker = cast('x' as blob)",
        "update writer set name = 'x' || name",
        "alter table writer rename marker to narker",
    ],
    ids=["a number", "a name", "a column"],
)
def test_a_flipped_bit_in_the_table_of_writers_is_one_line(
    world: World, sql: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.alter("log/results.db", sql)
    with pytest.raises(MillraceError) as raised:
        world.run()
    assert "\n" not in str(raised.value)
    assert not is_retryable(raised.value)
    capsys.readouterr()


@pytest.mark.parametrize("sql", ['update partition set "begin" = 32', "delete from chunk where base = 0"])
def test_a_flipped_bit_in_where_a_partition_begins_is_named(world: World, sql: str) -> None:
    world.alter("log/inputs.db", sql)
    shutil.rmtree(world.folder / "state")
    (world.folder / "log/results.db").unlink()
    with pytest.raises(LogDamaged, match=r"inputs\.db is damaged at input\.events\[0\]"):
        world.run()


def test_a_flipped_bit_in_the_identity_is_named(world: World) -> None:
    path = world.folder / "state/test/identity.json"
    whole = path.read_bytes()
    harmless = 0
    for at in range(len(whole)):
        path.write_bytes(flipped(whole, at))
        try:
            world.run()
        except StateUnreadable as error:
            assert "identity.json is damaged" in str(error)  # noqa: PT017 - some flips change only white space
        else:
            harmless += json.loads(path.read_bytes()) == json.loads(whole)
        path.write_bytes(whole)
        if at > 60:
            break
    assert harmless <= 5


def test_random_flips_anywhere_in_the_files_never_change_a_result(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance, clean = random.Random(7), tmp_path_factory.mktemp("clean")
    shutil.copytree(world.folder, clean / "world")
    expected, refused = world.run(), 0
    for _ in range(40):
        shutil.rmtree(world.folder)
        shutil.copytree(clean / "world", world.folder)
        path = world.folder / chance.choice(["log/inputs.db", "state/test/local.db"])
        path.write_bytes(flipped(path.read_bytes(), chance.randrange(path.stat().st_size)))
        try:
            found = world.run()
        except MillraceError:
            refused += 1
            continue
        assert found == expected
    assert refused > 5


def test_a_savepoint_has_a_checksum_over_all_of_it(world: World, tmp_path: Path) -> None:
    target = tmp_path / "one.savepoint"
    with lock_folder(world.settings.state.dir / "test") as folder:
        save(folder, target)
    load_savepoint(target)
    for sql in (
        "update chunks set slot = slot + 1",
        "update facts set value = flip_text(value, 40) where name = 'identity'",
        "delete from metas",
    ):
        shutil.copy(target, tmp_path / "other.savepoint")
        world.alter("other.savepoint", sql)
        with pytest.raises(StateUnreadable, match=r"other\.savepoint is damaged"):
            load_savepoint(tmp_path / "other.savepoint")


def strip(body: bytes) -> bytes:
    """A chunk as earlier versions wrote it."""
    return bytes([chunks.VERSION_WITHOUT_CHECKSUM]) + body[1:-4]


def test_a_log_without_checksums_is_still_read(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = World(tmp_path_factory.mktemp("other"))
    other.run()
    other.append(400)
    expected = other.run()
    with sqlite3.connect(world.folder / "log/inputs.db") as db:
        db.create_function("strip", 1, strip)
        db.execute("update chunk set body = strip(body)")
    db.close()
    assert world.run() == expected
    assert main(["verify", "--log", world.settings.log.url, "--state", str(world.settings.state.dir)]) == 0


@pytest.mark.parametrize(
    ("file", "sql", "place"),
    [
        (
            "log/inputs.db",
            "update chunk set body = flip(body, 99) where base = 0",
            "input.events[0], offsets 0 to 400",
        ),
        ("log/inputs.db", 'update partition set "end" = 4896', "input.events[0]"),
        ("log/results.db", "update chunk set body = flip(body, 99)", "offsets 0 to"),
        ("state/test/local.db", "update chunks set data = flip(data, 99)", "chunk"),
    ],
    ids=["an input", "an end", "a result", "state"],
)
def test_verify_lists_what_is_damaged(
    world: World, capsys: pytest.CaptureFixture[str], file: str, sql: str, place: str
) -> None:
    words = ["verify", "--log", world.settings.log.url, "--state", str(world.settings.state.dir), "--json"]
    assert main(words) == 0
    assert capsys.readouterr().out == ""
    world.alter(file, sql)
    assert main(words) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert any(damage["file"].endswith(file) and place in damage["place"] for damage in found)
    assert all(set(damage) == {"file", "place", "problem", "lost", "remedy"} for damage in found)


@pytest.mark.parametrize("file", ["log/results.db", "state/test/local.db"])
@pytest.mark.parametrize("harm", [0x80, 0x04, 0x10])
def test_a_flipped_bit_in_the_tables_of_a_file_is_one_line(world: World, file: str, harm: int) -> None:
    path = world.folder / file
    body = bytearray(path.read_bytes())
    body[body.index(b"(name text primary key") + 1] ^= harm
    path.write_bytes(body)
    with pytest.raises(MillraceError, match=r"results\.db.* is damaged|local\.db is damaged") as raised:
        world.run()
    assert "\n" not in str(raised.value)


def test_state_that_its_index_still_lists_but_its_table_does_not_is_missed(world: World) -> None:
    path = world.folder / "state/test/local.db"
    with sqlite3.connect(path) as db:
        [(page,)] = db.execute("select rootpage from sqlite_master where name = 'metas'").fetchall()
        [(size,)] = db.execute("pragma page_size").fetchall()
    db.close()
    overwrite(path, (page - 1) * size + 3, bytes(2))
    with pytest.raises(StateUnreadable, match=r"local\.db is damaged at its descriptions"):
        world.run()


def overwrite(path: Path, start: int, body: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + body + whole[start + len(body) :])


@pytest.mark.parametrize(
    "harm", [lambda path: overwrite(path, 8192, b"\xff" * 4096), lambda path: overwrite(path, 0, b"x" * 100)]
)
def test_a_malformed_file_of_the_log_is_one_line(
    world: World, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], None]
) -> None:
    harm(world.folder / "log/inputs.db")
    with pytest.raises(LogDamaged, match=r"inputs\.db is damaged .*restore .* from a backup"):
        world.run()
    assert main(["topics", "list", "--log", world.settings.log.url]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert main(["verify", "--log", world.settings.log.url, "--state", str(world.settings.state.dir)]) == 1
