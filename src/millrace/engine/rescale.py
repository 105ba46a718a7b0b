"""State for another number of slots, or for jobs in other stages:
every row goes where its key group lies now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import polars as pl

from millrace.engine.plan import Operator, Plan
from millrace.engine.routing import partition_by_slot
from millrace.engine.state import Chunk, SlotState
from millrace.errors import StateMismatch
from millrace.graph.build.rules import RULE_TEXT, MatchRules

StageSlot: TypeAlias = tuple[int, int]
"""A stage and a slot."""
BROADCAST_SUFFIX = "everywhere"
"""Tables whose names end so are the same in every slot."""


def redistribute(plan: Plan, states: Mapping[StageSlot, SlotState]) -> dict[StageSlot, SlotState]:
    """What `states` keep of the operators of a plan, for its stages and slots;
    what belongs to no operator of it is left behind.
    """
    result = {(depth, slot): SlotState() for depth in range(1, plan.depth + 1) for slot in range(plan.slots)}
    for operator in plan.operators:
        stage_slots = sorted(
            stage_slot for stage_slot, state in states.items() if operator.id in state.values
        )
        for stage_slot in stage_slots[:1]:
            for slot in range(plan.slots):
                result[operator.depth, slot] = result[operator.depth, slot].with_values(
                    operator.id, states[stage_slot].values[operator.id]
                )
        for stage_slot in stage_slots:
            for name, table in states[stage_slot].tables.items():
                if name.rsplit(":", 1)[0] == operator.id:
                    _distribute(
                        plan, operator, name, table.chunks, result, first=stage_slot == stage_slots[0]
                    )
    return result


def _is_in_every_slot(operator: Operator, name: str) -> pl.Expr:
    """Which rows of a table every slot has."""
    if isinstance(operator.node, MatchRules) and name.endswith(":waiting"):
        return pl.col(RULE_TEXT).is_not_null()
    return pl.lit(name.endswith(BROADCAST_SUFFIX))


def _distribute(
    plan: Plan,
    operator: Operator,
    name: str,
    chunks: Iterable[Chunk],
    result: dict[StageSlot, SlotState],
    *,
    first: bool,
) -> None:
    """Rows by key; those that every slot has come from the first of them."""
    keys = list(operator.node.keys)
    for chunk in chunks:
        common = _is_in_every_slot(operator, name)
        shared_rows, own_rows = chunk.frame.filter(common), chunk.frame.filter(~common)
        parts = [(slot, shared_rows) for slot in range(plan.slots) if first]
        if {*keys} <= {*own_rows.columns}:
            parts += partition_by_slot(own_rows, operator.node, plan.slots)
        elif not own_rows.is_empty():
            raise StateMismatch(
                f"{name} is stored without {', '.join(keys)}, so it cannot be dealt to {plan.slots} slots; "
                "keep their number (run.slots)"
            )
        for slot, part in parts:
            result[operator.depth, slot] = result[operator.depth, slot].with_chunk_part(name, part, chunk)
