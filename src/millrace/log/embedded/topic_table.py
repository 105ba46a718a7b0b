"""The tables `topic`, `partition` and `identity`: how each topic is declared, and where its partitions are.

Rows are made together with their topic. Afterwards only a topic's retention and how far its partitions reach
ever change.
"""

import uuid
from dataclasses import dataclass
from sqlite3 import Connection
from typing import get_args

from millrace.errors import LogDamaged
from millrace.log.contract import Partitioner, PartitionInfo, TopicInfo
from millrace.log.declarations import TopicFormat, check_declaration
from millrace.log.embedded.sqlite import Store, damaged_error
from millrace.log.partitioning import NEW_TOPICS, UNRECORDED


@dataclass(frozen=True)
class StoredTopic:
    """Where a topic is kept. It never changes, so it is looked up once per process."""

    name: str
    store: Store
    partition_ids: list[int]
    """The ids of partitions by number; adjacent, because a topic's partitions are made together."""
    partitioner: Partitioner


def list_topics(store: Store) -> list[str]:
    """The names of the topics in one file."""
    with store.reading() as connection:
        return [name for (name,) in connection.execute("select name from topic")]


def find_topic(store: Store, name: str) -> StoredTopic | None:
    """The topic of that name; `LogDamaged` if its rows contradict each other."""
    with store.reading() as connection:
        rows = connection.execute(
            "select p.id, p.number, t.partitioner from topic t join partition p on p.topic = t.id where "
            "t.name=? order by p.number",
            (name,),
        ).fetchall()
    if not rows:
        return None
    numbers = [number for _, number, _ in rows]
    if numbers != [*range(len(rows))]:
        error = LogDamaged(f"they are numbered {', '.join(map(str, numbers))}")
        raise damaged_error(store.path, name, "its partitions", error)
    return StoredTopic(name, store, [id for id, _, _ in rows], _check_partitioner(store, name, rows[0][2]))


def describe(topic: StoredTopic) -> TopicInfo:
    """How the topic is declared, and what its partitions hold."""
    with topic.store.reading() as connection:
        id, codec, type_name, envelope, retention = connection.execute(
            "select id, codec, type, envelope, retention from topic where name=?", (topic.name,)
        ).fetchone()
        partitions = connection.execute(
            'select "begin", "end", "end"-"begin", bytes from partition where topic=? order by number', (id,)
        )
        return TopicInfo(
            topic.name,
            codec,
            type_name,
            bool(envelope),
            retention,
            topic.partitioner,
            [PartitionInfo(*partition) for partition in partitions],
        )


def read_identity(topic: StoredTopic) -> str | None:
    """What tells a topic from another of the same name; None: an earlier version made the topic."""
    with topic.store.reading() as connection:
        row = connection.execute(
            "select i.id from identity i join topic t on t.id = i.topic where t.name=?", (topic.name,)
        ).fetchone()
    return None if row is None else str(row[0])


def ensure_topic(
    store: Store, name: str, partitions: int, wanted: TopicFormat, retention: int | None
) -> None:
    """Creates the topic, or compares declarations (`TopicMismatch`); its retention becomes the one given."""
    with store.reading() as connection:
        known = _read_declaration(connection, name)
    if known is None:
        with store.writing() as connection:
            known = _read_declaration(connection, name)  # another process may have been first
            if known is None:
                _create_topic(connection, name, partitions, wanted, retention)
                return
    check_declaration(name, (partitions, *wanted), known[:-1])
    if retention != known[-1]:
        with store.writing() as connection:
            connection.execute("update topic set retention=? where name=?", (retention, name))


def _read_declaration(
    connection: Connection, name: str
) -> tuple[int, str, str, str, bool, int | None] | None:
    row = connection.execute(
        "select (select count(*) from partition where topic=t.id), codec, type, fields, envelope, retention "
        "from topic t where name=?",
        (name,),
    ).fetchone()
    return None if row is None else (row[0], row[1], row[2], row[3], bool(row[4]), row[5])


def _create_topic(
    connection: Connection, name: str, partitions: int, wanted: TopicFormat, retention: int | None
) -> None:
    topic = connection.execute(
        "insert into topic(name, codec, type, fields, envelope, retention, partitioner) "
        "values(?, ?, ?, ?, ?, ?, ?)",
        (name, *wanted, retention, NEW_TOPICS),
    ).lastrowid
    connection.execute("insert into identity values(?, ?)", (topic, uuid.uuid4().hex))
    connection.executemany(
        "insert into partition(topic, number) values(?, ?)", [(topic, number) for number in range(partitions)]
    )


def _check_partitioner(store: Store, topic: str, recorded: object) -> Partitioner:
    """The recorded partitioner. A wrong guess would put updates of a key into another partition."""
    if recorded is None:
        return UNRECORDED
    for known in get_args(Partitioner):
        if recorded == known:
            return known  # type: ignore[no-any-return] # a value of the Literal
    raise damaged_error(
        store.path,
        topic,
        "its keyed records",
        LogDamaged(
            f"its partitioner {recorded!r} is not known here: the bytes are damaged, or a newer millrace "
            "wrote them: upgrade millrace then"
        ),
    )
