"""From rows to rows with answers: each different key is answered once in a batch, from memory or by asking."""

from __future__ import annotations

import dataclasses
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from millrace.errors import LookupFailed
from millrace.lookups.client import Asker, Failed, Key
from millrace.lookups.settings import Lookup
from millrace.values import function_results

COUNTED = ("asked", "cached", "missing", "failed", "refused")
"""What is counted of each lookup, in keys: those asked for, those remembered, those of which there is nothing, those that could not be
answered, and of these those for which nobody was asked because the circuit breaker was open."""


@dataclass
class Batch:
    """What is known while one batch is routed: its clock, the answers given in it, and how many."""

    now: int | None
    answers: dict[str, dict[Key, Any]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, lookup: Lookup, what: str, keys: int) -> None:
        """So many keys more."""
        if keys:
            name = f"lookup/{lookup.name}/{what}"
            self.counts[name] = self.counts.get(name, 0) + keys


_batch: ContextVar[Batch | None] = ContextVar("millrace-lookups", default=None)


@contextmanager
def answering(now: int) -> Iterator[Batch]:
    """Within it, whoever asks for the same key gets the same answer, the one that failed too; `now` is the batch's clock."""
    batch = Batch(now)
    token = _batch.set(batch)
    try:
        yield batch
    finally:
        _batch.reset(token)


class Memory:
    """The answers that a process remembers of one lookup, and who is asked for the others."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.asker = Asker(lookup, self._checked)
        self._kept: OrderedDict[Key, tuple[Any, int | None]] = OrderedDict()

    def find(self, key: Key, now: int | None) -> tuple[bool, Any]:
        """Whether an answer is still believed, and what it is."""
        found = self._kept.get(key)
        if found is None:
            return False, None
        answer, asked = found
        believed = self.lookup.negative_ttl if answer is None else self.lookup.ttl
        if now is not None and (asked is None or now - asked >= believed):
            del self._kept[key]
            return False, None
        self._kept.move_to_end(key)
        return True, answer

    def keep(self, key: Key, answer: Any, now: int | None) -> None:
        """Remembers an answer, and forgets the one longest unused if there are too many."""
        self._kept[key] = (answer, now)
        self._kept.move_to_end(key)
        while len(self._kept) > self.lookup.cache:
            self._kept.popitem(last=False)

    def _checked(self, returned: Any) -> tuple[Any, ...] | None:
        """What the function returned as values of the columns; raises where it does not fit."""
        if returned is None:
            return None
        given = returned
        if dataclasses.is_dataclass(returned) and not isinstance(returned, type):
            given = dataclasses.asdict(returned)
        if not isinstance(given, dict):
            raise TypeError(f"it answered {returned!r}; an answer is a dict, a dataclass or None")
        if strange := sorted(given.keys() - set(self.lookup.schema)):
            raise ValueError(
                f"it answered {strange[0]!r}, which is none of the columns {', '.join(self.lookup.schema)}"
            )
        values = tuple(
            function_results.fit(column, given.get(column), dtype)
            for column, dtype in self.lookup.schema.items()
        )
        pl.DataFrame(
            {column: [value] for column, value in zip(self.lookup.schema, values, strict=True)},
            self.lookup.schema,
            strict=False,
        )
        return values


_memories: dict[tuple[int, str], Memory] = {}


def memory_of(lookup: Lookup) -> Memory:
    """What this process remembers; a forked one begins anew."""
    place = os.getpid(), lookup.id
    if place not in _memories:
        _memories[place] = Memory(lookup)
    return _memories[place]


def answered(lookup: Lookup, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows in their order, with the columns of the answers; null where a key is null, unknown, or could not be answered."""
    keys = list(lookup.keys)
    if frame.is_empty():
        return frame.with_columns(
            pl.lit(None, dtype).alias(column) for column, dtype in lookup.schema.items()
        )
    wanted = frame.select(keys).unique(maintain_order=True)
    answers = _answers(lookup, wanted.drop_nulls().rows())
    nothing = (None,) * len(lookup.schema)
    rows = [nothing if answers.get(key) is None else answers[key] for key in wanted.rows()]
    found = pl.DataFrame(rows, schema=lookup.schema, orient="row")
    return frame.join(
        pl.concat([wanted, found], how="horizontal"),
        on=keys,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )


def _answers(lookup: Lookup, keys: list[Key]) -> dict[Key, tuple[Any, ...] | None]:
    """An answer to each key: of this batch, of before, or by asking."""
    batch = _batch.get() or Batch(None)
    known, memory = batch.answers.setdefault(lookup.id, {}), memory_of(lookup)
    new = [key for key in keys if key not in known]
    remembered = 0
    for key in new:
        there, answer = memory.find(key, batch.now)
        if there:
            known[key] = answer
            remembered += 1
    asked = [key for key in new if key not in known]
    for key, answer in zip(asked, memory.asker.ask(asked) if asked else [], strict=True):
        known[key] = answer
        if not isinstance(answer, Failed):
            memory.keep(key, answer, batch.now)
    failed = [known[key] for key in asked if isinstance(known[key], Failed)]
    batch.count(lookup, "asked", len(asked) - sum(one.refused for one in failed))
    batch.count(lookup, "cached", remembered)
    batch.count(lookup, "missing", sum(known[key] is None for key in new))
    batch.count(lookup, "failed", len(failed))
    batch.count(lookup, "refused", sum(one.refused for one in failed))
    if lookup.on_error == "fail":
        for key in keys:
            if isinstance(known[key], Failed):
                raise LookupFailed(
                    f"lookup {lookup.name} of {', '.join(map(repr, key))}: {known[key].reason}; on_error='fail' stops the job"
                )
    return {key: None if isinstance(known[key], Failed) else known[key] for key in keys}
