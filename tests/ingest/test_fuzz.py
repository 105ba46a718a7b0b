"""Whatever a message holds, it ends in the log: as an event,
or as a dead letter that says why and whence. Nothing stops the rest.
"""

import copy
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.ingest import Connector, MessageBatch, MessageProcessor, ingest, processor
from millrace.log import Log, open_log
from millrace.log.codecs.codec import decode
from millrace.log.dead_letters import parse_letters

ODD: dict[str, Any] = {
    "nulled": None, "retyped": {"not": ["this"]}, "a list": [[]], "text": "💥\0ä", "empty": "", "true": True,
    "negative": -1, "huge": 10**400,
    "long": "9" * 100_000, "fraction": 1.5, "infinite": 1e308, "a time": "9999-12-31T23:59:59.999Z",
    "no time": "2020-02-30T00:00:00Z",
}  # fmt: skip


class Given(Connector):
    """Brings these messages and ends."""

    def __init__(self, payloads: list[bytes]) -> None:
        self.payloads, self.acknowledged = payloads, 0

    def poll(self, *, limit: int, wait: int) -> MessageBatch | None:
        taken, self.payloads = self.payloads[:limit], self.payloads[limit:]
        return (
            MessageBatch(
                ["/hfp/v2/journey"] * len(taken),
                taken,
                [1_600_657_201_148] * len(taken),
                range(len(taken)),
                "given",
            )
            if taken
            else None
        )

    def acknowledge(self, batch: MessageBatch) -> None:
        self.acknowledged += len(batch)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = open_log(f"embedded:{tmp_path / 'log'}")
    yield opened
    opened.close()


def held(log: Log, name: str) -> int:
    return sum(log.end_offsets(name).values()) if name in log.list_topics() else 0


def check(log: Log, understood: MessageProcessor, payloads: list[bytes]) -> Counter[str]:
    """Writes them all, and looks that each is an event or a letter; gives the reasons."""
    dead = f"dead.{understood.topics[0].name}"
    before, letters_before = (
        {topic.name: held(log, topic.name) for topic in understood.topics},
        held(log, dead),
    )
    connector = Given(list(payloads))
    counts = ingest(connector, understood, log)
    assert connector.acknowledged == counts.received == len(payloads)
    written = {topic.name: held(log, topic.name) - before[topic.name] for topic in understood.topics}
    assert {name: count for name, count in written.items() if count} == counts.written
    assert counts.written.total() + counts.rejected.total() == len(payloads)
    assert held(log, dead) - letters_before == counts.rejected.total()
    if counts.rejected:
        letters = parse_letters(log.read(dead, 0, letters_before, held(log, dead)))
        assert Counter(letters["reason"]) == counts.rejected
        assert all(
            payloads[int(origin.removeprefix("given:"))] == value
            for origin, value in letters.select("origin", "value").iter_rows()
        )
    for topic in understood.topics:
        for partition, end in log.end_offsets(topic.name).items():
            found = decode(topic, partition, log.read(topic.name, partition, 0, end))
            assert len(found.rows) == end  # what was taken for an event can be read as one
    return counts.rejected


@pytest.mark.recordings
def test_every_field_of_real_messages_may_be_removed_or_anything(log: Log, recordings: Path) -> None:
    with gzip.open(recordings / "hsl-2020-09-21.jsonl.gz") as file:
        real = {next(iter(payload)): payload for payload in (json.loads(line)["payload"] for line in file)}
    assert len(real) == 12
    payloads = []
    for kind, message in real.items():
        for field in message[kind]:
            for odd in [..., *ODD.values()]:
                changed = copy.deepcopy(message)
                if odd is ...:
                    del changed[kind][field]
                else:
                    changed[kind][field] = odd
                payloads.append(json.dumps(changed).encode())
    reasons = check(log, processor("hsl"), payloads)
    assert {
        "no oper",
        "no tst",
        "no position",
        "wrong veh",
        "wrong tst",
        "wrong lat",
        "impossible position",
    } <= set(reasons)
    assert len(reasons) < 40


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**30), 10**30),
        st.floats(),
        st.text(max_size=20),
        st.sampled_from(list(ODD.values())),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
bodies = st.dictionaries(
    st.sampled_from(
        [
            "oper",
            "veh",
            "tst",
            "lat",
            "long",
            "spd",
            "hdg",
            "acc",
            "dl",
            "odo",
            "drst",
            "dir",
            "route",
            "stop",
            "oday",
            "start",
        ]
    ),
    anything,
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    good = {"oper": 12, "veh": 3, "tst": "2020-09-21T03:00:00.963Z", "lat": 60.2, "long": 24.9}
    kind = draw(st.sampled_from(["VP", "ARS", "DOO", "PAS", "XX", ""]))
    text = json.dumps({kind: good | draw(bodies)}).encode(errors="surrogatepass")
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.binary(max_size=3)) + text[at:] if draw(st.integers(0, 5)) == 0 else text


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payloads=st.lists(st.one_of(messages(), st.binary(max_size=40)), min_size=1, max_size=10))
def test_whatever_a_message_holds_it_is_counted_and_kept(log: Log, payloads: list[bytes]) -> None:
    check(log, processor("hsl"), payloads)
