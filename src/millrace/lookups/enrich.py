"""Adds the answers of a lookup to rows.
Each distinct key is answered once per batch, from the cache or by a call.
"""

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
from millrace.lookups.client import FailedLookup, Key, LookupClient
from millrace.lookups.settings import LookupSpec
from millrace.values import function_results

COUNTER_NAMES = ("asked", "cached", "missing", "failed", "refused")
"""The counters of a lookup, in keys: asked for, found in the cache, answered None, failed,
and of these refused by the breaker.
"""


@dataclass
class LookupBatch:
    """The clock, the answers and the counters of one batch."""

    now: int | None
    answers: dict[str, dict[Key, Any]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, lookup: LookupSpec, counter: str, keys: int) -> None:
        """Adds a number of keys to a counter."""
        if keys:
            name = f"lookup/{lookup.name}/{counter}"
            self.counts[name] = self.counts.get(name, 0) + keys


_current_batch: ContextVar[LookupBatch | None] = ContextVar("millrace-lookups", default=None)


@contextmanager
def share_answers(now: int) -> Iterator[LookupBatch]:
    """Inside this context a key has one answer for all jobs, even a failed one.
    `now` is the clock of the batch.
    """
    batch = LookupBatch(now)
    token = _current_batch.set(batch)
    try:
        yield batch
    finally:
        _current_batch.reset(token)


class AnswerCache:
    """The cached answers of one lookup in this process, and the client for the others."""

    def __init__(self, lookup: LookupSpec) -> None:
        self.lookup = lookup
        self.client = LookupClient(lookup, self._check_answer)
        self._answers: OrderedDict[Key, tuple[Any, int | None]] = OrderedDict()

    def find(self, key: Key, now: int | None) -> tuple[bool, Any]:
        """Whether an answer is cached and not expired, and the answer."""
        entry = self._answers.get(key)
        if entry is None:
            return False, None
        answer, asked_at = entry
        ttl = self.lookup.negative_ttl if answer is None else self.lookup.ttl
        if now is not None and (asked_at is None or now - asked_at >= ttl):
            del self._answers[key]
            return False, None
        self._answers.move_to_end(key)
        return True, answer

    def store(self, key: Key, answer: Any, now: int | None) -> None:
        """Caches an answer, and evicts the least recently used one if there are too many."""
        self._answers[key] = (answer, now)
        self._answers.move_to_end(key)
        while len(self._answers) > self.lookup.cache:
            self._answers.popitem(last=False)

    def _check_answer(self, answer: Any) -> tuple[Any, ...] | None:
        """Converts the result of the function to values of the columns; raises where it does not fit."""
        if answer is None:
            return None
        fields = answer
        if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
            fields = dataclasses.asdict(answer)
        if not isinstance(fields, dict):
            raise TypeError(f"it returned {answer!r}; return a dict, a dataclass or None")
        if unknown := sorted(fields.keys() - set(self.lookup.schema)):
            raise ValueError(
                f"it returned {unknown[0]!r}, which is not one of the columns {', '.join(self.lookup.schema)}"
            )
        values = tuple(
            function_results.fit(column, fields.get(column), dtype)
            for column, dtype in self.lookup.schema.items()
        )
        pl.DataFrame(
            {column: [value] for column, value in zip(self.lookup.schema, values, strict=True)},
            self.lookup.schema,
            strict=False,
        )
        return values


_caches: dict[tuple[int, str], AnswerCache] = {}


def cache_of(lookup: LookupSpec) -> AnswerCache:
    """The cache of a lookup in this process; a forked process has caches of its own."""
    cache_id = os.getpid(), lookup.id
    if cache_id not in _caches:
        _caches[cache_id] = AnswerCache(lookup)
    return _caches[cache_id]


def add_answers(lookup: LookupSpec, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows in their order, with the columns of the answers.
    They are null where a key is null, unknown or failed.
    """
    keys = list(lookup.keys)
    if frame.is_empty():
        return frame.with_columns(
            pl.lit(None, dtype).alias(column) for column, dtype in lookup.schema.items()
        )
    distinct_keys = frame.select(keys).unique(maintain_order=True)
    answers = _find_answers(lookup, distinct_keys.drop_nulls().rows())
    no_answer = (None,) * len(lookup.schema)
    rows = [no_answer if answers.get(key) is None else answers[key] for key in distinct_keys.rows()]
    answer_columns = pl.DataFrame(rows, schema=lookup.schema, orient="row")
    return frame.join(
        pl.concat([distinct_keys, answer_columns], how="horizontal"),
        on=keys,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )


def _find_answers(lookup: LookupSpec, keys: list[Key]) -> dict[Key, tuple[Any, ...] | None]:
    """The answers to keys: from this batch, from the cache, or by calls."""
    batch = _current_batch.get() or LookupBatch(None)
    known, cache = batch.answers.setdefault(lookup.id, {}), cache_of(lookup)
    new = [key for key in keys if key not in known]
    cached = 0
    for key in new:
        is_cached, answer = cache.find(key, batch.now)
        if is_cached:
            known[key] = answer
            cached += 1
    uncached = [key for key in new if key not in known]
    for key, answer in zip(uncached, cache.client.ask(uncached) if uncached else [], strict=True):
        known[key] = answer
        if not isinstance(answer, FailedLookup):
            cache.store(key, answer, batch.now)
    failed = [known[key] for key in uncached if isinstance(known[key], FailedLookup)]
    batch.count(lookup, "asked", len(uncached) - sum(failure.is_refused for failure in failed))
    batch.count(lookup, "cached", cached)
    batch.count(lookup, "missing", sum(known[key] is None for key in new))
    batch.count(lookup, "failed", len(failed))
    batch.count(lookup, "refused", sum(failure.is_refused for failure in failed))
    if lookup.on_error == "fail":
        for key in keys:
            if isinstance(known[key], FailedLookup):
                raise LookupFailed(
                    f"lookup {lookup.name} of {', '.join(map(repr, key))}: {known[key].reason}; "
                    "on_error='fail' stops the job"
                )
    return {key: None if isinstance(known[key], FailedLookup) else known[key] for key in keys}
