"""Flipped bits in the indexes and small tables of the embedded log, in savepoints and in the quarantine:
refused in one line, or harmless.
"""

import random
import shutil
import sqlite3
from pathlib import Path

import polars as pl
import pytest

from millrace.engine.isolation import Failure
from millrace.errors import LogDamaged, MillraceError, StateUnreadable
from millrace.log import open_log
from millrace.log.codecs.codec import encode
from millrace.log.dead_letters import DEAD_SCHEMA
from millrace.runners.spark.supervisor.failures import is_retryable
from millrace.runners.state.folder import lock_folder
from millrace.runners.state.quarantine import Quarantine
from millrace.runners.state.savepoint import load_savepoint, save
from runners.test_damage import EVENTS, TOTALS, World, flipped, overwrite


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.run()
    made.append(400)
    return made


def page_of(path: Path, name: str) -> tuple[int, int]:
    """Where the first page of a table or index begins and ends."""
    with sqlite3.connect(path) as db:
        [(page,)] = db.execute("select rootpage from sqlite_master where name = ?", (name,)).fetchall()
        [(size,)] = db.execute("pragma page_size").fetchall()
    db.close()
    return (page - 1) * size, page * size


def test_a_topic_that_its_index_has_lost_is_not_made_anew(world: World) -> None:
    path = world.folder / "log/results.db"
    start, end = page_of(path, "sqlite_autoindex_topic_1")
    at = path.read_bytes().index(TOTALS.name.encode(), start, end)
    overwrite(path, at, b"b")
    with pytest.raises(
        LogDamaged, match=r"results\.db is damaged at its table topic .*restore .* from a backup"
    ) as raised:
        world.run()
    assert "\n" not in str(raised.value)
    assert not is_retryable(raised.value)


def test_an_index_that_leads_to_another_chunk_is_not_believed(world: World) -> None:
    path = world.folder / "log/inputs.db"
    start, end = page_of(path, "sqlite_autoindex_chunk_1")
    second = path.read_bytes().index(bytes([4, 9, 2, 1, 400 // 256, 400 % 256, 2]), start, end)
    overwrite(
        path, second + 3, b"\x09"
    )  # its row is the number 1, no longer the number in the byte at the end
    with pytest.raises(LogDamaged, match=r"inputs\.db is damaged at input\.events\[0\], offsets 400 to 800"):
        world.run()


def test_a_record_is_not_joined_with_a_chunk_that_an_index_takes_for_the_last(tmp_path: Path) -> None:
    log, chance = open_log(f"embedded:{tmp_path}"), random.Random(1)
    log.ensure(EVENTS)

    def append(length: int) -> None:
        key = "".join(chr(chance.randrange(97, 1_000)) for _ in range(length))
        log.append(
            EVENTS.name,
            encode(
                EVENTS, pl.DataFrame({"key": [key], "number": [length], "event_time": [1]}), ingestion_time=1
            ),
        )

    for length in (9_000, 1, 9_000, 9_000, 9_000, 2):
        append(length)
    log.close()
    path = tmp_path / "inputs.db"
    start, end = page_of(path, "sqlite_autoindex_chunk_1")
    last = path.read_bytes().index(bytes([4, 9, 1, 1, 5, 6]), start, end)
    overwrite(path, last + 5, b"\x02")  # the second chunk, which is as short
    with pytest.raises(LogDamaged, match=r"inputs\.db is damaged at input\.events\[0\]"):
        append(3)


@pytest.mark.parametrize("file", ["results.db", "inputs.db"])
def test_a_flipped_bit_on_the_pages_of_small_tables_and_indexes_changes_no_result(
    world: World, tmp_path_factory: pytest.TempPathFactory, file: str
) -> None:
    chance, clean = random.Random(file), tmp_path_factory.mktemp("clean") / "world"
    shutil.copytree(world.folder, clean)
    expected, path = world.run(), world.folder / "log" / file
    whole = (clean / "log" / file).read_bytes()
    names = [
        "topic",
        "partition",
        "writer",
        *(f"sqlite_autoindex_{name}_1" for name in ("topic", "partition", "writer", "chunk")),
    ]
    for name in names:
        start, end = page_of(clean / "log" / file, name)
        used = [at for at in range(start, end) if whole[at]]
        for at in chance.sample(used, min(4, len(used))):
            shutil.rmtree(world.folder)
            shutil.copytree(clean, world.folder)
            overwrite(path, at, bytes([whole[at] ^ 1 << chance.randrange(8)]))
            try:
                found = world.run()
            except MillraceError:
                continue
            assert found == expected, f"{name} at {at - start}"


def test_a_flipped_bit_anywhere_in_a_savepoint_is_refused_or_harmless(world: World, tmp_path: Path) -> None:
    target, chance = tmp_path / "one.savepoint", random.Random(3)
    with lock_folder(world.settings.state.dir / "test") as folder:
        saved = save(folder, target)
    whole, refused = target.read_bytes(), 0
    used = [at for at, byte in enumerate(whole) if byte]
    for at in [*range(100), *chance.sample(used, 300)]:
        target.write_bytes(whole[:at] + flipped(whole[at : at + 1], at) + whole[at + 1 :])
        try:
            found = load_savepoint(target)
            values = {place: state.values for place, state in found.states.items()}
            chunks = [
                chunk.frame
                for state in found.states.values()
                for table in state.tables.values()
                for chunk in table.chunks
            ]
        except MillraceError:
            refused += 1
            continue
        assert (found.identity, found.offsets) == (saved.identity, saved.offsets)
        assert values == {place: state.values for place, state in saved.states.items()}
        assert chunks
    assert refused > 100


def case(job: str) -> Failure:
    return Failure(job, "ZeroDivisionError: by zero", pl.DataFrame(schema=DEAD_SCHEMA), "trace")


def test_a_flipped_bit_in_the_quarantine_is_refused_and_no_job_is_let_out_or_put_in(tmp_path: Path) -> None:
    Quarantine(tmp_path).commit_failures(7, 1_000, [case("totals"), case("others")])
    path = tmp_path / "quarantine.json"
    whole, known, harmless = path.read_bytes(), Quarantine(tmp_path).cases, 0
    assert known.keys() == {"totals", "others"}
    places = [*range(0, len(whole), 19), *range(whole.index(b"letters")), *range(len(whole) - 40, len(whole))]
    for at in places:
        path.write_bytes(whole[:at] + flipped(whole[at : at + 1], at) + whole[at + 1 :])
        try:
            found = Quarantine(tmp_path).cases
        except StateUnreadable as error:
            assert "quarantine.json is damaged" in str(error)  # noqa: PT017 - some flips change only white space
        else:
            harmless += 1
            assert found == known
    assert harmless < len(places) // 10
