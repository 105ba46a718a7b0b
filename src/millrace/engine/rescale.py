"""State for another number of slots, or for jobs in other stages: every row goes where its key group lies now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import polars as pl

from millrace.engine.plan import Operator, Plan
from millrace.engine.source import by_slot
from millrace.engine.state import Chunk, SlotState
from millrace.errors import StateMismatch
from millrace.graph.build.rules import DECLARED, Rules

Place: TypeAlias = tuple[int, int]
"""A stage and a slot."""
EVERYWHERE = "everywhere"
"""Tables whose names end so are the same in every slot."""


def recut(plan: Plan, states: Mapping[Place, SlotState]) -> dict[Place, SlotState]:
    """What `states` keep of the operators of a plan, for its stages and slots; what belongs to no operator of it is left behind."""
    made = {(depth, slot): SlotState() for depth in range(1, plan.depth + 1) for slot in range(plan.slots)}
    for operator in plan.operators:
        places = sorted(place for place, state in states.items() if operator.id in state.values)
        for place in places[:1]:
            for slot in range(plan.slots):
                made[operator.depth, slot] = made[operator.depth, slot].with_values(
                    operator.id, states[place].values[operator.id]
                )
        for place in places:
            for name, table in states[place].tables.items():
                if name.rsplit(":", 1)[0] == operator.id:
                    _dealt(plan, operator, name, table.chunks, made, first=place == places[0])
    return made


def _common(operator: Operator, name: str) -> pl.Expr:
    """Which rows of a table every slot has."""
    if isinstance(operator.node, Rules) and name.endswith(":waiting"):
        return pl.col(DECLARED).is_not_null()
    return pl.lit(name.endswith(EVERYWHERE))


def _dealt(
    plan: Plan,
    operator: Operator,
    name: str,
    chunks: Iterable[Chunk],
    made: dict[Place, SlotState],
    *,
    first: bool,
) -> None:
    """Rows by key; those that every slot has come from the first of them."""
    keys = list(operator.node.keys)
    for chunk in chunks:
        common = _common(operator, name)
        same, own = chunk.frame.filter(common), chunk.frame.filter(~common)
        parts = [(slot, same) for slot in range(plan.slots) if first]
        if {*keys} <= {*own.columns}:
            parts += by_slot(own, keys, plan.slots)
        elif not own.is_empty():
            raise StateMismatch(
                f"{name} is stored without {', '.join(keys)}, so it cannot be dealt to {plan.slots} slots; keep their number (spark.slots)"
            )
        for slot, part in parts:
            made[operator.depth, slot] = made[operator.depth, slot].with_part(name, part, chunk)
