"""Tables: a changelog, of which the newest row of each key holds."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from millrace import graph
from millrace.errors import DefinitionError
from millrace.graph.build import join as joining
from millrace.stream import Stream, read
from millrace.topics import Topic
from millrace.values.calls import explain_errors_of, require_type
from millrace.watermarks import Watermark


@dataclass(frozen=True, eq=False)
class Table:
    """The newest row of each key, as of any event time: `stream.group_by("key").join(table)`."""

    changes: Stream
    """The rows that change it, as a stream."""
    keys: tuple[str, ...]
    deleted: pl.Expr | None

    def __repr__(self) -> str:
        """The key and the columns."""
        return f"Table(by {', '.join(self.keys)}: {', '.join(self.changes.columns)})"

    def _as_join_side(self) -> joining.TableSide:
        return joining.TableSide(self.changes.node, self.keys, None, self.deleted)


def table(topic: Topic, *, watermark: Watermark | None = None, deleted: pl.Expr | None = None) -> Table:
    """A topic as a table by its key: a row holds from its event time on, until the next of its key.

    A row for which `deleted` holds takes its key out, and so does a record without a value, where the topic
    says `tombstones=True`.
    """
    require_type("table", topic, Topic, "a topic; say Topic('name', Type, key='...')")
    topic = topic.typed()
    if topic.key is None:
        raise DefinitionError(
            f"table({topic.name}): the topic has no key, so no row could take the place of another; say "
            "Topic(..., key=...)"
        )
    changes = read(topic, watermark=watermark)
    if deleted is not None:
        if not isinstance(deleted, pl.Expr):
            raise DefinitionError(
                f"table({topic.name}): deleted={deleted!r} is not an expression; use one such as "
                "pl.col('gone')"
            )
        columns = graph.columns_used([deleted])
        missing = [column for column in columns or () if column not in changes.columns]
        if missing:
            raise DefinitionError(
                f"table({topic.name}): deleted={deleted} looks at {missing[0]!r}; there are "
                f"{', '.join(changes.columns)}"
            )
        changes.filter(deleted)
    if topic.tombstones:
        is_tombstone = pl.all_horizontal(pl.col(name).is_null() for name in topic.schema if name != topic.key)
        deleted = is_tombstone if deleted is None else is_tombstone | deleted.fill_null(value=False)
    return Table(changes, (topic.key,), deleted)


explain_errors_of(globals(), "table")
