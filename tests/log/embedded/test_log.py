"""What is particular to the log in a folder: its files, its disk, its threads."""

import os
import resource
import signal
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from log import children
from log.children import texts
from log.conftest import Start
from millrace.errors import LogError, LogUnwritable
from millrace.log import OutgoingRecords, open_log
from millrace.log.embedded.log import EmbeddedLog
from millrace.log.writer_watermarks import watermarks_at

NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def embedded(folder: Path) -> Iterator[EmbeddedLog]:
    log = EmbeddedLog(folder)
    yield log
    log.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach; that of pytest is private."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made) / "log"


def values(log: EmbeddedLog, topic: str) -> list[bytes]:
    return [
        value
        for p, end in log.end_offsets(topic).items()
        for value in log.read(topic, p, log.start_offsets(topic)[p], end).values.to_pylist()
    ]


def in_child(do: Callable[[], None]) -> str:
    """What `do` raises in a process of its own, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        printed = "nothing"
        try:
            do()
        except BaseException as error:  # noqa: BLE001  # the child must not go on with the parent's tests
            printed = f"{type(error).__name__}: {error}"
        os.write(write, printed.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return text


# Opening


def test_a_path_and_its_url_open_the_same_log(folder: Path) -> None:
    log = open_log(str(folder))
    log.ensure_raw("t")
    assert log.url == f"embedded:{folder}"
    assert open_log(log.url).list_topics() == ["t"]


def test_a_log_that_must_exist_is_not_created(folder: Path) -> None:
    with pytest.raises(LogError, match="there is no log in"):
        open_log(str(folder), create=False)
    assert not folder.exists()


def test_other_kinds_of_log_are_refused_clearly() -> None:
    with pytest.raises(LogError, match="there are embedded logs and Kafka"):
        open_log("redis://localhost:6379")


def test_processes_that_create_the_same_log_at_once_agree(folder: Path, start: Start) -> None:
    EmbeddedLog(folder.parent / "warm").close()
    running = [start(children.create_and_append, f"embedded:{folder}", who) for who in range(6)]
    for process in running:
        process.join()
        assert process.exitcode == 0
    assert sorted(values(EmbeddedLog(folder), "t")) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_inputs_and_results_are_kept_in_different_files(folder: Path, embedded: EmbeddedLog) -> None:
    embedded.ensure_raw("input.t")
    embedded.ensure_raw("analytics.t")
    names = {
        file: sqlite3.connect(folder / file).execute("select name from topic").fetchall()
        for file in ("inputs.db", "results.db")
    }
    assert names == {"inputs.db": [("input.t",)], "results.db": [("analytics.t",)]}


def test_an_input_topic_cannot_be_part_of_a_commit(embedded: EmbeddedLog) -> None:
    embedded.ensure_raw("input.t")
    with pytest.raises(LogError, match=r"choose a name outside input\.\*"):
        embedded.writer("query").commit(0, {"input.t": texts("a")})


# Faults


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 300])
def test_a_writer_that_dies_before_any_statement_of_a_commit_leaves_all_or_nothing(
    folder: Path, embedded: EmbeddedLog, start: Start, size: int
) -> None:
    sizes = {"a": size, "b": 2}
    for topic in sizes:
        embedded.ensure_raw(topic, partitions=2)
    outcomes: list[int | None] = []
    number = 0
    while not outcomes or outcomes[-1] != 0:
        number += 1
        process = start(children.die_at_statement, embedded.url, "query", sizes, number)
        process.join()
        outcomes.append(process.exitcode)
        last = embedded.writer("query").last_marker
        for topic, count in sizes.items():
            assert sorted(values(embedded, topic)) == sorted(
                f"{marker}.{i}".encode() for marker in range(last + 1) for i in range(count)
            )
            vouched = watermarks_at(embedded.writer_watermarks(topic), embedded.end_offsets(topic))
            assert vouched == ({} if last < 0 else {0: last, 1: last})
    assert set(outcomes[:-1]) == {-signal.SIGKILL}
    assert len(outcomes) > 10


def test_a_full_disk_refuses_the_append_and_loses_nothing(embedded: EmbeddedLog) -> None:
    embedded.ensure_raw("t")
    embedded.append("t", texts("kept"))
    writer = embedded.writer("query")
    connection = embedded._results.connection()
    pages = connection.execute("pragma page_count").fetchone()[0]
    connection.execute(f"pragma max_page_count={pages}")
    large = OutgoingRecords(pa.array([b"x" * 100_000]))
    with pytest.raises(LogUnwritable, match=r"the disk of .* is full .*; free some space"):
        embedded.append("t", large)
    with pytest.raises(LogUnwritable):
        writer.commit(0, {"t": large})
    assert values(embedded, "t") == [b"kept"]
    connection.execute("pragma max_page_count=1000000")
    writer.commit(0, {"t": texts("again")})
    assert values(embedded, "t") == [b"kept", b"again"]


def test_a_file_that_may_not_grow_refuses_the_append_and_loses_nothing(folder: Path) -> None:
    def fill() -> None:
        log = EmbeddedLog(folder)
        log.ensure_raw("t")
        log.append("t", texts("kept"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        log.append("t", OutgoingRecords(pa.array([b"x" * 1_000_000])))

    printed = in_child(fill)
    assert printed.startswith("LogUnwritable: the disk of ")
    assert values(EmbeddedLog(folder), "t") == [b"kept"]


@pytest.mark.root
def test_a_folder_without_permission_is_named_with_the_remedy(open_folder: Path) -> None:
    log = EmbeddedLog(open_folder)
    log.ensure_raw("t")
    log.append("t", texts("kept"))
    log.close()

    def as_nobody() -> None:
        os.setuid(NOBODY)
        EmbeddedLog(open_folder).append("t", texts("lost"))

    printed = in_child(as_nobody)
    assert printed.startswith("LogUnwritable: ")
    assert f"give this user write permission on {open_folder}" in printed
    assert values(EmbeddedLog(open_folder), "t") == [b"kept"]


@pytest.mark.root
def test_a_folder_that_cannot_be_made_is_named(open_folder: Path) -> None:
    def as_nobody() -> None:
        os.setuid(NOBODY)
        EmbeddedLog(open_folder)

    assert in_child(as_nobody).startswith(
        f"LogUnwritable: the log folder {open_folder} cannot be made (Permission denied)"
    )


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("hello")
    with pytest.raises(LogUnwritable, match="cannot be made"):
        EmbeddedLog(tmp_path / "log")


def test_a_file_that_is_not_a_log_is_called_damaged(folder: Path) -> None:
    folder.mkdir()
    (folder / "results.db").write_bytes(b"not a database, " * 1000)
    with pytest.raises(LogError, match=r"results\.db is damaged .* restore"):
        EmbeddedLog(folder)


def test_a_damaged_page_is_told_apart_from_a_missing_topic(folder: Path) -> None:
    log = EmbeddedLog(folder)
    log.ensure_raw("t")
    for i in range(50):
        log.append("t", texts(str(i) * 5000))
    log.close()
    file = folder / "results.db"
    data = bytearray(file.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    file.write_bytes(data)
    with pytest.raises(LogError, match="is damaged"):
        values(EmbeddedLog(folder), "t")


def test_a_log_of_a_newer_version_is_refused(folder: Path) -> None:
    EmbeddedLog(folder).close()
    sqlite3.connect(folder / "results.db").execute("pragma user_version=99")
    with pytest.raises(LogError, match=r"written by a newer millrace \(format 99"):
        EmbeddedLog(folder)


# Threads and processes


def test_a_log_can_be_used_on_both_sides_of_a_fork(embedded: EmbeddedLog) -> None:
    embedded.ensure_raw("t")
    embedded.append("t", texts("before"))
    assert in_child(lambda: embedded.append("t", texts("child"))) == "nothing"
    embedded.append("t", texts("after"))
    assert values(embedded, "t") == [b"before", b"child", b"after"]


def test_a_log_can_be_used_by_several_threads(embedded: EmbeddedLog) -> None:
    embedded.ensure_raw("t", partitions=2)

    def append(who: int) -> None:
        for i in range(20):
            embedded.append("t", texts(f"{who}.{i}"))

    threads = [threading.Thread(target=append, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(values(embedded, "t")) == sorted(
        f"{who}.{i}".encode() for who in range(4) for i in range(20)
    )


# Layout


def test_a_trickle_of_records_does_not_become_a_row_each(folder: Path, embedded: EmbeddedLog) -> None:
    embedded.ensure_raw("t")
    for i in range(200):
        embedded.append("t", texts(f"{i:0100}"), now=i)
    rows = sqlite3.connect(folder / "results.db").execute("select count(*) from chunk").fetchone()[0]
    assert rows < 10
    got = embedded.read("t", 0, 0, 200)
    assert got.timestamps.tolist() == list(range(200))
    assert [int(value) for value in got.values.to_pylist()] == list(range(200))
    assert embedded.describe("t").partitions[0].bytes == sum(
        length
        for (length,) in sqlite3.connect(folder / "results.db").execute("select length(body) from chunk")
    )
