"""State for another number of slots, or for jobs in other stages: every row goes where its key group lies now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from millrace.engine.plan import Operator, Plan
from millrace.engine.source import by_slot
from millrace.engine.state import Chunk, SlotState
from millrace.errors import StateMismatch

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
                made[operator.depth, slot] = made[operator.depth, slot].with_values(operator.id, states[place].values[operator.id])
        for place in places:
            for name, table in states[place].tables.items():
                if name.rsplit(":", 1)[0] == operator.id and not (name.endswith(EVERYWHERE) and place != places[0]):
                    _dealt(plan, operator, name, table.chunks, made)
    return made


def _dealt(plan: Plan, operator: Operator, name: str, chunks: Iterable[Chunk], made: dict[Place, SlotState]) -> None:
    keys = list(operator.node.keys)
    for chunk in chunks:
        if name.endswith(EVERYWHERE):
            parts = [(slot, chunk.frame) for slot in range(plan.slots)]
        elif {*keys} <= {*chunk.frame.columns}:
            parts = by_slot(chunk.frame, keys, plan.slots)
        else:
            raise StateMismatch(
                f"{name} is stored without {', '.join(keys)}, so it cannot be dealt to {plan.slots} slots; keep their number (spark.slots)"
            )
        for slot, part in parts:
            made[operator.depth, slot] = made[operator.depth, slot].with_part(name, part, chunk)
