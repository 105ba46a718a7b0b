"""What the state of an operator depends on, part by part: stored beside the state, and compared when a
changed job comes back to it.

The parts are those of the node's `identity()`, whether rows or panes come in, and the steps before the
operator. Steps belong to it: a late correction of a first aggregation takes back what it had given to the
second. Were the key made otherwise now, the correction would go to another key, and both keys would stay
wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import polars as pl

from millrace import graph
from millrace.graph.identity import find_expressions, identify_trigger
from millrace.triggers import AtWatermark, Never, Trigger, has_own_trigger

if TYPE_CHECKING:
    from millrace.engine.plan import Operator

_SLICED_TRIGGERS = (AtWatermark(), AtWatermark(late=Never()))
"""The triggers with which windows may be kept as slices."""
_DIFFERENCES = {
    "kind": "is another kind of operator",
    "keys": "is grouped by other keys",
    "aggregates": "has other aggregates",
    "windowing": "has another window, trigger, lateness or output",
    "pattern": "has another pattern",
    "shown": "shows other columns of its matches",
    "columns": "has other columns",
    "within": "looks for copies over another length of time",
    "processor": "has another processor, or one with other state",
    "how": "joins otherwise",
    "lower": "joins rows of another distance in time",
    "upper": "joins rows of another distance in time",
    "table_keys": "joins a table with another key",
    "frame": "has other row frames",
    "lateness": "takes rows of another lateness",
    "ttl": "has another ttl",
    "over": "takes panes instead of rows, or the other way round",
    "form": "keeps what it remembers in another form",
    "beside": "takes rows beside panes, or none any more",
}
_OTHER_STEPS = "has other steps (filter, with_columns, select, ...) before it"


def describe(operator: Operator) -> str:
    """What the state depends on, as text that is compared part by part."""
    parts: dict[str, Any] = {
        **operator.node.identity(),
        "over": "rows" if operator.over_rows else "panes",
        "steps": sorted((_identify_steps(edge) for edge in operator.edges), key=_to_text),
        "exactly": _expression_digests(operator),
    }
    if operator.node.state_form > 1:
        parts["form"] = operator.node.state_form
    if operator.takes_rows_beside_panes:
        parts["beside"] = "rows"
    if operator.node.parallelism is not None:
        parts["parallelism"] = operator.node.parallelism
    return json.dumps(parts, sort_keys=True)


def _identify_steps(edge: graph.Edge) -> list[graph.Identity]:
    """The steps of a user; those of an aggregation's arguments are in its own identity, and the order of
    columns is in none.
    """
    steps = (step.identity() for step in edge.steps if not isinstance(step, graph.Arguments))
    return [identity for identity in steps if identity]


def _to_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _expression_digests(operator: Operator) -> dict[str, Any]:
    """What texts of expressions leave out (elements of a long list, a format, an option), as digests that one
    version of polars can compare.
    """
    return {
        "polars": pl.__version__,
        "parts": {part: _digest(value) for part, value in operator.node.expressions().items()},
        "steps": sorted({_digest_steps(edge) for edge in operator.edges}),
    }


def _digest_steps(edge: graph.Edge) -> str:
    return _digest([step.exprs for step in edge.steps if not isinstance(step, graph.Arguments)])


def _digest(value: Any) -> str:
    digest = blake2b(digest_size=8)
    for expr in find_expressions(value):
        try:
            whole = b"" if "python_udf" in str(expr) else expr.meta.serialize()
        except pl.exceptions.PolarsError:  # a function of Python is known by its name
            whole = b""
        digest.update(blake2b(whole).digest())
    return digest.hexdigest()


def parallelism_of(stored: str) -> int | None:
    """Over how many slots the state of an operator described as `stored` is spread; None: over all."""
    parallelism: int | None = json.loads(stored).get("parallelism")
    return parallelism


@dataclass(frozen=True)
class Adaptation:
    """What state must be adapted to, before an operator goes on with it."""

    lateness: int | None = None
    """The old lateness, where it is longer now."""
    added: tuple[str, ...] = ()
    """Aggregates that windows did not have so far."""
    trigger: graph.Identity | None = None
    """The old trigger, where it is another one now."""

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return self.lateness is not None or self.trigger is not None or bool(self.added)


def find_adaptation(stored: str | None, operator: Operator) -> Adaptation:
    """How state of an operator described as `stored` is made to fit, where that is possible."""
    node = operator.node
    if stored is None or not isinstance(node, graph.Aggregation) or node.windowing.is_ordered:
        return Adaptation()
    old = json.loads(stored)
    if old["kind"] != node.kind:
        return Adaptation()
    lateness, trigger = _changed_timing(old["windowing"], node.windowing)
    added = _added_aggregates(old["aggregates"], node) if operator.over_rows and node.evict is None else ()
    return Adaptation(lateness, added, trigger)


def _changed_timing(old: Mapping[str, Any], now: graph.Windowing) -> tuple[int | None, graph.Identity | None]:
    """The old lateness and the old trigger, where they are other ones now and state can follow; neither where
    it cannot: a trigger of a user's own would have to see rows that came before it.
    """
    new = now.identity()
    if any(old[part] != new[part] for part in new if part not in ("trigger", "lateness")):
        return None, None
    lateness, trigger = old["lateness"], old["trigger"]
    is_longer, is_other_trigger = lateness < now.lateness, trigger != new["trigger"]
    before = replace(now, trigger=_sliced_trigger(trigger), lateness=lateness)
    in_cells = before.sliced_window is None and now.sliced_window is None
    if (
        lateness > now.lateness
        or (is_longer and (now.fires_once or before.fires_once))
        or (is_other_trigger and (not in_cells or has_own_trigger(now.trigger)))
    ):
        return None, None
    return lateness if is_longer else None, trigger if is_other_trigger else None


def _sliced_trigger(identity: graph.Identity) -> Trigger:
    """The trigger of this identity where windows may be kept as slices, else one with which they are not."""
    return next((one for one in _SLICED_TRIGGERS if identify_trigger(one) == identity), Never())


def _added_aggregates(old: Sequence[graph.Identity], node: graph.Aggregation) -> tuple[str, ...]:
    """The aggregates of a node that an old description lacks; none where it had others, or another order."""
    remaining, added = list(old), []
    for aggregate in node.identity()["aggregates"]:
        if remaining and remaining[0] == aggregate:
            remaining.pop(0)
        else:
            added.append(aggregate["name"])
    return tuple(added) if not remaining else ()


def find_difference(stored: str, operator: Operator) -> str | None:
    """Why state of an operator described as `stored` does not fit this one; None if it does."""
    old, new = json.loads(stored), json.loads(describe(operator))
    if old["kind"] != new["kind"]:
        return f"{_DIFFERENCES['kind']} than its state was made with"
    adaptation = find_adaptation(stored, operator)
    if adaptation.lateness is not None or adaptation.trigger is not None:
        old["windowing"] = new["windowing"]
    if adaptation.added:
        old["aggregates"] = new["aggregates"]
    changed = [part for part in _DIFFERENCES if old.get(part) != new.get(part)]
    if old["exactly"]["polars"] == new["exactly"]["polars"]:
        changed += list(_other_expressions(old["exactly"], new["exactly"]))
    messages = [_DIFFERENCES[part] for part in _DIFFERENCES if part in changed]
    if "steps" in changed or not {*map(_to_text, old["steps"])} <= {*map(_to_text, new["steps"])}:
        messages.append(_OTHER_STEPS)
    return f"{' and '.join(dict.fromkeys(messages))} than its state was made with" if messages else None


def _other_expressions(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """The parts whose expressions are others, though their texts may be the same."""
    for part, digest in new["parts"].items():
        if old["parts"].get(part, digest) != digest:  # an added aggregate has no old one
            yield part.partition("/")[0]
    if not {*old["steps"]} <= {*new["steps"]}:
        yield "steps"
