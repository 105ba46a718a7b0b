"""Every operator may follow every other on Spark, too: many chains, fused into a query."""

from __future__ import annotations

import random

import pytest

from chain_links import CHANGELOGS, ROWS
from millrace.runners.spark.scripts import SparkScript
from millrace.stream import Stream
from millrace.testing.model.source import SourceEvent
from millrace.testing.script import OnEngine
from strategies import READINGS, Batch, Given
from test_chains import chain, given_chains, pairs
from test_engine_against_model import differences, refused, shown

pytestmark = pytest.mark.spark

UNIT = 1_000
SECONDS = [*ROWS, *CHANGELOGS]
SELECTIVE = {
    "near_itself",
    "matched",
    "matched_past_last",
    "recognized",
    "in_threes",
    "late_for_sessions",
    "late_for_join",
}
"""Those that give few results, or none after some of the others."""


def some_batches(jobs: Given, seed: int) -> list[Batch]:
    """Rows on time and late, in a few batches, with two restarts; then the end."""
    chance, now = random.Random(seed), 1_700_000_000_000
    ends = {(topic, p): 0 for topic, count in jobs.partitions.items() for p in range(count)}
    made = []
    for number in range(7):
        events = []
        for _ in range(14):
            now += chance.randrange(3) * UNIT
            topic, partition = place = chance.choice(sorted(ends))
            at = now - chance.choice([0, 0, 1, 1, 2, 3, 9]) * UNIT
            values = (
                {
                    "name": chance.choice("rs"),
                    "pattern": chance.choice(["", "pattern: [{step: a}]\nwithin: 3000"]),
                }
                if topic == "input.rules"
                else {name: chance.choice(options) for name, options in READINGS.items()}
            )
            events.append(SourceEvent(topic, partition, ends[place], at, now, values))
            ends[place] += 1
        made.append(Batch(tuple(events), now, restart=number in (3, 5)))
    return [*made, Batch((), now, end=True)]


def hold_on_spark(chains: dict[str, Stream], seed: int, *, at_least: int = 10) -> None:
    """Chains as one query on Spark, held to the engine batch by batch; `at_least`: results of a chain."""
    jobs = given_chains(UNIT, chains, 2)
    spark = SparkScript(jobs.jobs, jobs.partitions)
    engine = OnEngine(jobs.jobs, jobs.partitions, slots=4)
    written = 0
    for batch in some_batches(jobs, seed):
        if batch.restart:
            spark.restart()
            engine.restart()
        on_spark = spark.feed(batch.events, batch.now, end=batch.end)
        expected = engine.feed(batch.events, batch.now, end=batch.end)
        assert not differences(shown(on_spark), shown(expected))
        assert not differences(refused(on_spark), refused(expected))
        written += sum(map(len, expected.written.values()))
    spark.close()
    assert written > at_least * len(chains)


def test_every_operator_follows_some_other_on_spark() -> None:
    """Each link stands once before and once behind another."""
    names = sorted(ROWS)
    chains = {
        f"{first}-{second}": chain(UNIT, ROWS[first], ROWS[second])
        for first, second in zip(names, [*names[7:], *names[:7]], strict=True)
    }
    hold_on_spark(chains, 0)


@pytest.mark.long
@pytest.mark.parametrize("second", SECONDS)
def test_every_operator_may_follow_every_other_on_spark(second: str) -> None:
    hold_on_spark(pairs(UNIT, second), SECONDS.index(second), at_least=0 if second in SELECTIVE else 10)
