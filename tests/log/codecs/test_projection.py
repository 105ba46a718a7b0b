"""Columns that are decoded alone are what they are among all others."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from log.events import POSITIONS, Everything, Position, records, sealed, sent
from log.shapes import shape
from log.test_cross_check import everything
from millrace.log.codecs import binary, codec, projection
from millrace.log.codecs.codec import decode, encode
from millrace.log.codecs.event_pb2 import Event
from millrace.topics import Topic
from strategies import examples

NAMES = [field.name for field in Everything.DESCRIPTOR.fields]
subsets = st.none() | st.frozensets(st.sampled_from(NAMES), max_size=5)


@dataclass
class Priced:
    name: str
    price: Decimal
    micros: datetime
    note: str | None


def expected(topic: Topic, values: Sequence[bytes | None], names: frozenset[str] | None, panes: bool) -> Any:
    whole = decode(topic, 0, records(list(values)), panes=panes)
    dropped = [name for name in topic.schema if names is not None and name not in names]
    return whole.rows.drop(dropped), whole.dead


@pytest.fixture(params=["at once", "one after the other"])
def opening(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the envelope is parsed with what it holds."""
    if request.param != "at once":
        monkeypatch.setattr(codec, "_parse_sealed", lambda *_: None)
    return str(request.param)


@pytest.mark.parametrize("panes", [False, True])
@examples(40)
@given(messages=st.lists(everything(), min_size=1, max_size=5), names=subsets)
def test_a_column_alone_is_what_it_is_among_all(
    panes: bool, messages: list[Any], names: frozenset[str] | None
) -> None:
    topic = Topic("t", Everything)
    values: list[bytes | None] = [sealed(message) for message in messages]
    rows, dead = expected(topic, values, names, panes)
    alone = decode(topic, 0, records(values), panes=panes, wanted_columns=names)
    assert_frame_equal(alone.rows, rows)
    assert_frame_equal(alone.dead, dead)


@examples(40)
@given(messages=st.lists(everything(), min_size=1, max_size=5), names=subsets)
def test_envelope_and_event_at_once_are_what_they_are_one_after_the_other(
    messages: list[Any], names: frozenset[str] | None
) -> None:
    topic = Topic("t", Everything)
    values: list[bytes | None] = [sealed(message) for message in messages]
    at_once = decode(topic, 0, records(values), wanted_columns=names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_parse_sealed", lambda *_: None)
        in_turn = decode(topic, 0, records(values), wanted_columns=names)
    assert_frame_equal(at_once.rows, in_turn.rows)
    assert_frame_equal(at_once.dead, in_turn.dead)


@examples(40)
@given(messages=st.lists(everything(), min_size=1, max_size=5), names=subsets)
def test_so_is_a_column_of_a_topic_without_envelopes(
    messages: list[Any], names: frozenset[str] | None
) -> None:
    topic = Topic("t", Everything, envelope=False, time="q")
    values: list[bytes | None] = [message.SerializeToString() for message in messages]
    rows, dead = expected(topic, values, names, False)
    alone = decode(topic, 0, records(values), wanted_columns=names)
    assert_frame_equal(alone.rows, rows)
    assert_frame_equal(alone.dead, dead)


@pytest.mark.parametrize("wanted", [None, {"vehicle"}, {"speed", "sequence"}, set()])
@pytest.mark.usefixtures("opening")
def test_a_bad_record_is_dead_whichever_columns_are_wanted(wanted: set[str] | None) -> None:
    good = sealed(Position(vehicle="v", speed=1.5, sequence=3))
    without_details = Event.FromString(good)
    without_details.ClearField("details")
    without_value = Event.FromString(good)
    without_value.details.ClearField("value")
    values: list[bytes | None] = [
        good,
        b"\xff\xff",
        None,
        good[:-1],
        without_details.SerializeToString(),
        sealed(shape("OldPosition")(vehicle="v")),
        sealed(Position(), event_time=None),
        without_value.SerializeToString(),
        good,
    ]
    names = None if wanted is None else frozenset(wanted)
    rows, dead = expected(POSITIONS, values, names, False)
    found = decode(POSITIONS, 0, records(values), wanted_columns=names)
    assert found.rows["_off"].to_list() == [0, 7, 8]
    assert_frame_equal(found.rows, rows)
    assert_frame_equal(found.dead, dead)


@pytest.mark.parametrize(
    ("wanted", "dead"), [({"route"}, 0), ({"vehicle"}, 1), ({"vehicle", "route"}, 1), (None, 1)]
)
@pytest.mark.parametrize("neighbour", [sealed(Position(route="r")), b"\xff"])
@pytest.mark.usefixtures("opening")
def test_what_is_wrong_in_a_field_counts_where_that_field_is_read(
    wanted: set[str] | None, dead: int, neighbour: bytes
) -> None:
    """Also beside a record that cannot be read at all: how ranges are cut must not matter."""
    not_text = Event.FromString(sealed(Position(route="r")))
    not_text.details.value += b"\x0a\x02\xff\xfe"
    values: list[bytes | None] = [not_text.SerializeToString(), neighbour]
    found = decode(
        POSITIONS, 0, records(values), wanted_columns=None if wanted is None else frozenset(wanted)
    )
    assert (found.dead["offset"] == 0).sum() == dead


@pytest.mark.parametrize("names", [{"price"}, {"name", "micros"}, {"note"}, set(), None])
def test_columns_that_are_stored_as_text_or_in_other_units_are_as_declared(names: set[str] | None) -> None:
    topic = Topic("t", Priced)
    frame = pl.DataFrame(
        {
            "name": ["a", "b"],
            "price": [Decimal("1.50"), Decimal(-2)],
            "micros": [datetime(2024, 5, 1, 12, 0, 0, 250_001, UTC)] * 2,
            "note": [None, "n"],
            "event_time": [1, 2],
        },
        schema_overrides=dict(topic.schema),
    )
    values = sent(encode(topic, frame)).values.to_pylist()
    wanted = None if names is None else frozenset(names)
    rows, dead = expected(topic, values, wanted, False)
    found = decode(topic, 0, records(values), wanted_columns=wanted)
    assert_frame_equal(found.rows, rows)
    assert not len(dead)


def test_fields_that_nobody_wants_are_not_in_the_type_that_parses() -> None:
    wanted = frozenset({"vehicle", "speed"})
    fields = projection.fields_of(Position, wanted)
    assert [(field.name, field.number) for field in fields.fields] == [("vehicle", 1), ("speed", 6)]
    handler = binary.sealed_handler(Position, wanted, False)
    assert handler is not None
    assert [field.name for field in handler.schema] == ["event_timestamp", "ingestion_timestamp", "details"]
    assert projection.fields_of(Position, None) is Position.DESCRIPTOR


def test_the_fields_of_a_oneof_stay_together() -> None:
    fields = projection.fields_of(Everything, frozenset({"cc"}))
    assert [field.name for field in fields.fields] == ["bb", "cc"]
    assert [oneof.name for oneof in fields.oneofs] == ["choice"]


def test_fields_of_the_second_version_of_protobuf_are_read_alone() -> None:
    file = FileDescriptorProto(name="old.proto", package="old")
    message = file.message_type.add(name="Old")
    for number, name in enumerate(("a", "b"), start=1):
        message.field.add(name=name, number=number, type=9, label=1, default_value="none")
    pool = DescriptorPool()
    pool.Add(file)
    old: Any = GetMessageClass(pool.FindMessageTypeByName("old.Old"))
    values: list[bytes | None] = [sealed(old(a="1", b="2")), sealed(old(a="3"))]
    topic = Topic("t", old)
    rows, _ = expected(topic, values, frozenset({"b"}), False)
    assert_frame_equal(decode(topic, 0, records(values), wanted_columns=frozenset({"b"})).rows, rows)
    assert [field.name for field in projection.fields_of(old, frozenset({"b"})).fields] == ["b"]
