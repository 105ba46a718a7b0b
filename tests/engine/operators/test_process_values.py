"""Values of a processor that are changed in place: each key has its own,
emitted rows keep theirs, shared ones stay.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl
import pytest

import millrace as mr
from engine.operators.test_process import REPORTS, Counts, rows
from millrace import state
from millrace.errors import DefinitionError
from millrace.processors import Context
from millrace.testing.script import On, Script


class Remembers(Counts):
    """Changes a list that began as a default."""

    names: state.ValueState[list[str]] = state.value([])
    lives: state.ValueState[dict[str, list[str]]] = state.value({}, ttl=10)
    rules: state.ValueState[list[str]] = state.value([], shared=True)

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        self.names.append(row["kind"])
        self.lives.setdefault("kinds", []).append(row["kind"])
        ctx.emit(label=f"{self.names} {self.lives}", number=len(self.names))
        self.names.append("again")


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_default_that_can_be_changed_belongs_to_one_key_alone(on: On) -> None:
    script = Script(mr.Job("remembers", rows().group_by("who").process(Remembers()).write(REPORTS)), on=on)
    script.events(
        *(
            {"who": who, "kind": kind, "value": 1, "event_time": at}
            for at, who, kind in [(1, "ann", "a"), (2, "bob", "b")]
        )
    )
    script.watermark(10)
    script.restart()
    script.events({"who": "ann", "kind": "c", "value": 1, "event_time": 15})
    script.watermark(20)
    assert [(row["who"], row["label"]) for row in script.panes()] == [
        ("ann", "['a'] {'kinds': ['a']}"),
        ("bob", "['b'] {'kinds': ['b']}"),
        ("ann", "['a', 'again', 'c'] {'kinds': ['c']}"),
    ]
    assert Remembers.names.default == []
    assert Remembers.lives.default == {}


class Lists(mr.Processor):
    """Emits a list, and changes it afterwards."""

    outputs: ClassVar = {"names": pl.List(pl.String)}
    names: state.ValueState[list[str]] = state.value([])

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        self.names.append(row["kind"])
        ctx.emit(names=self.names)
        self.names.append("after")


@dataclass
class Names:
    who: str
    names: list[str]


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_row_that_was_emitted_does_not_change_with_the_list_it_was_made_of(on: On) -> None:
    script = Script(
        mr.Job("lists", rows().group_by("who").process(Lists()).write(mr.Topic("names", Names))), on=on
    )
    script.events(*({"who": "x", "kind": kind, "value": 1, "event_time": at} for at, kind in enumerate("ab")))
    script.watermark(10)
    assert [row["names"] for row in script.panes()] == [["a"], ["a", "after", "b"]]


class ChangesRules(Remembers):
    """Changes shared state outside of `process_broadcast`."""

    def process(self, row: dict[str, Any], ctx: Context) -> None:
        self.rules.append(row["kind"])


@pytest.mark.parametrize("on", ["model", "engine"])
def test_a_shared_list_changed_in_place_by_a_row_is_refused(on: On) -> None:
    script = Script(mr.Job("wrong", rows().group_by("who").process(ChangesRules()).write(REPORTS)), on=on)
    script.events({"who": "x", "kind": "a", "value": 1, "event_time": 1})
    with pytest.raises(DefinitionError, match="change it in process_broadcast"):
        script.watermark(5)
