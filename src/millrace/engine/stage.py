"""One stage in one slot: all operators of that depth, of all jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from millrace import graph, lookups
from millrace.engine import state as states
from millrace.engine.emitted_rows import asks_for_order, refused_to_rows, select_columns, to_rows
from millrace.engine.exchange import Block, Body, Packet, merge_bodies
from millrace.engine.isolation import (
    NO_DEAD_LETTERS,
    NOT_USER_ERRORS,
    RUNNING_JOBS,
    SCHEMA_ERRORS,
    failure_block,
    find_culprits,
    is_user_error,
    note_culprit,
    to_dead_letters,
)
from millrace.engine.operators import shared_slices, windows
from millrace.engine.operators.contract import OperatorResult
from millrace.engine.operators.emit import drop_replaced_retractions, net_changes
from millrace.engine.operators.partials import partials_of
from millrace.engine.operators.registry import operator_for
from millrace.engine.plan import Operator, Plan, Route
from millrace.engine.routing import SET_ASIDE, deliver, forward_rows, partition_by_slot
from millrace.engine.state import SlotState
from millrace.errors import StateUnreadable
from millrace.values.calls import ordinary_errors
from millrace.values.columns import PAIR, REPORTS_ERRORS, SOURCE, WATERMARK
from millrace.values.user_code import add_row


def forget_state() -> None:
    """Drops what this process remembers of state, as if it had ended."""
    windows.clear_cache()
    shared_slices.clear_cache()
    states.clear_cache()


def step(
    plan: Plan, depth: int, slot: int, state: SlotState, bodies: Sequence[Body]
) -> tuple[SlotState, list[Packet]]:
    """A batch through a stage: its packets in; the state after it,
    and packets for the next stage or the end, out.
    """
    incoming = merge_bodies(bodies)
    operators = {operator.id: operator for operator in plan.stage(depth)}
    last = depth == plan.depth
    outgoing = [_next_body(incoming) for _ in range(1 if last else plan.slots)]
    own = outgoing[0] if last else outgoing[slot]
    for body in outgoing if slot == 0 else ():
        body.sources += incoming.sources
    own.counts |= incoming.counts
    own.partition_watermarks |= incoming.partition_watermarks
    own.blocks += [block for block in incoming.blocks if block.target not in operators]
    with lookups.share_answers(incoming.now) as answers:
        state = _step_operators(plan, operators, slot, state, incoming, (outgoing, own))
    for name, count in answers.counts.items():
        own.counts[name] = own.counts.get(name, 0) + count
    state = state.only_operators({operator.id for operator in plan.operators if operator.depth == depth})
    if last:
        return state, [Packet(slot, own)]
    return state, [Packet(to, body) for to, body in enumerate(outgoing)]


def _step_operators(
    plan: Plan,
    operators: dict[str, Operator],
    slot: int,
    state: SlotState,
    incoming: Body,
    outboxes: tuple[list[Body], Body],
) -> SlotState:
    """Every operator's part; what one job's code raises is that job's own affair."""
    outgoing, own = outboxes
    for id, operator in operators.items():
        blocks = [block for block in incoming.blocks if block.target == id]
        RUNNING_JOBS.jobs = operator.jobs
        try:
            if not {f"failed/{job}" for job in operator.jobs} <= {block.target for block in own.blocks}:
                with ordinary_errors():
                    state = _step_operator(plan, operator, slot, state, (incoming, blocks), (outgoing, own))
        except NOT_USER_ERRORS:
            raise
        except Exception as error:
            rerun = _make_rerun(plan, operator, state, incoming, blocks)
            if not plan.isolates_jobs:
                note_culprit(error, rerun, [block.frame for block in blocks])
                raise
            found = find_culprits(rerun, [block.frame for block in blocks])
            add_row(error, *found)
            dead = _collect_dead_letters(operator, found, blocks)
            own.blocks += [failure_block(job, f"in {id}", error, dead) for job in operator.jobs]
    return state


def _step_operator(
    plan: Plan,
    operator: Operator,
    slot: int,
    state: SlotState,
    inbox: tuple[Body, list[Block]],
    outboxes: tuple[list[Body], Body],
) -> SlotState:
    """One operator's part: what comes to it, and the packets that go on."""
    outgoing, own = outboxes
    incoming, blocks = inbox
    aside = [block.frame for block in blocks if block.kind == SET_ASIDE]
    result = _run_operator(
        operator, state, (incoming, [block for block in blocks if block.kind != SET_ASIDE])
    )
    is_idle = _is_idle(operator, result, incoming)
    for body in (incoming, *outgoing):
        body.low_watermarks[operator.id] = result.watermark
        if is_idle:
            body.idle_operators |= {operator.id}
    if slot == 0 and result.progress is not None and result.progress.partition_watermarks:
        own.partition_watermarks[operator.id] = list(result.progress.partition_watermarks)
    _send(plan, operator, result, outgoing, own)
    refused = aside if result.late is None else [result.late, *aside]
    if refused:
        late = pl.concat(refused, how="diagonal_relaxed")
        _send_late(plan, operator, late, incoming.now, outboxes)
    _forward_rows(plan, operator, result, incoming, outboxes)
    return result.state


def _is_idle(operator: Operator, result: OperatorResult, incoming: Body) -> bool:
    """Whether nobody need wait for the operator, as all that it reads is idle."""
    if result.progress is not None:
        return result.progress.is_idle
    return incoming.idle_operators.issuperset(id for id in operator.upstream if id is not None)


def _run_operator(operator: Operator, state: SlotState, inbox: tuple[Body, list[Block]]) -> OperatorResult:
    """The operator's own part. If stored rows do not fit new ones, the job is not to blame."""
    try:
        return operator_for(operator).step(state, *inbox)
    except SCHEMA_ERRORS as error:
        if is_user_error(error) or _fails_without_state(operator, inbox):
            raise
        message = str(error).strip().partition("\n")[0]
        raise StateUnreadable(
            f"{operator.id}: rows as they are stored do not fit those that come ({type(error).__name__}: "
            f"{message}); mend what migrate= made of them, restore an earlier savepoint, or start at the "
            f"present, without state: --reset {operator.jobs[0]}"
        ) from error


def _fails_without_state(operator: Operator, inbox: tuple[Body, list[Block]]) -> bool:
    """Whether the rows that come are to blame, whatever is stored."""
    try:
        operator_for(operator).step(SlotState(), *inbox)
    except Exception:  # noqa: BLE001 - whatever it is, state is not to blame
        return True
    return False


def _make_rerun(
    plan: Plan, operator: Operator, state: SlotState, incoming: Body, blocks: list[Block]
) -> Callable[[Sequence[pl.DataFrame]], None]:
    """Runs an operator again on parts of what came to it."""

    def rerun(frames: Sequence[pl.DataFrame]) -> None:
        parts = [
            block.with_frame(frame)
            for block, frame in zip(blocks, frames, strict=True)
            if not frame.is_empty()
        ]
        outgoing = [_next_body(incoming) for _ in range(plan.slots)]
        _step_operator(plan, operator, 0, state, (incoming, parts), (outgoing, outgoing[0]))

    return rerun


def _collect_dead_letters(
    operator: Operator, found: Sequence[pl.DataFrame], blocks: list[Block]
) -> pl.DataFrame:
    """The rows with which an operator failed, as dead letters."""
    return pl.concat(
        [
            NO_DEAD_LETTERS.drop("reason"),
            *(
                to_dead_letters(offending, operator.topic_of(block.channel))
                for offending, block in zip(found, blocks, strict=True)
            ),
        ],
        how="diagonal_relaxed",
    )


def _next_body(incoming: Body) -> Body:
    """What the next stage must know besides rows."""
    return Body(
        incoming.now,
        low_watermarks=dict(incoming.low_watermarks),
        idle_operators=incoming.idle_operators,
    )


def _send(plan: Plan, operator: Operator, result: OperatorResult, outgoing: list[Body], own: Body) -> None:
    if result.dead_letters is not None:
        own.blocks.append(Block.of("dead", "dead", result.dead_letters))
    _send_output(plan, operator, "out", (result.panes, result.changes), (outgoing, own))
    for output, rows in result.side_outputs.items():
        _send_output(plan, operator, output, (rows, rows.drop(PAIR)), (outgoing, own))


def _send_late(
    plan: Plan, operator: Operator, late: pl.DataFrame, now: int, outboxes: tuple[list[Body], Body]
) -> None:
    """Rows that were refused: to the end of the query, which reports them, and to where `late()` goes."""
    outgoing, own = outboxes
    internal = (WATERMARK, SOURCE, REPORTS_ERRORS)
    own.blocks.append(Block.of(f"late/{operator.id}", "late", late.drop(internal, strict=False)))
    if REPORTS_ERRORS in late.columns:  # a broadcast row is none of the stream's own
        late = late.filter(pl.col(REPORTS_ERRORS).is_null())
    if isinstance(operator.node, graph.Aggregation) and operator.node.windowing.is_processing_time:
        late = late.with_columns(pl.lit(now, pl.Int64).alias(WATERMARK))
    for route in plan.routes_from(operator, graph.LATE) if late.height else ():
        schema = route.edge.schema
        if route.operator is not None:
            deliver(route, None, refused_to_rows(late, schema, route.edge_index), (), outgoing)
            continue
        _append_block(own, route, "rows", route.edge.apply(select_columns(late, schema)))


def _forward_rows(
    plan: Plan, operator: Operator, result: OperatorResult, incoming: Body, outboxes: tuple[list[Body], Body]
) -> None:
    """Rows that stay rows: to operators of this stage, which find them among what came in, or onward."""
    outgoing, own = outboxes
    for next_route in plan.routes_from(operator) if result.rows else ():
        rows = result.rows.get(next_route.edge.input_edge)
        if rows is None:
            continue
        if next_route.operator is not None and next_route.operator.depth > operator.depth:
            forward_rows(next_route, rows, outgoing)
            continue
        local_body = Body(incoming.now)
        forward_rows(next_route, rows, [local_body])
        for block in local_body.blocks:
            (incoming if block.target == next_route.target and next_route.operator else own).blocks.append(
                block
            )


def _send_output(
    plan: Plan,
    operator: Operator,
    output: str,
    frames: tuple[pl.DataFrame, pl.DataFrame],
    outboxes: tuple[list[Body], Body],
) -> None:
    """What leaves by one port, as it is shown and as it travels on."""
    (shown, changes), (outgoing, own) = frames, outboxes
    for next_route in plan.routes_from(operator, output):
        if next_route.edge.read is not None:  # rows, which are handed on
            continue
        if (shown if next_route.operator is None else changes).is_empty():
            continue
        if next_route.operator is None:
            rows = next_route.edge.apply(shown)
            if next_route.edge.may_cancel:
                rows = rows.with_columns(pl.lit(0, pl.Int64).alias(PAIR))
            _append_block(
                own,
                next_route,
                "panes",
                net_changes(rows)
                if next_route.edge.makes_pane_rows or next_route.edge.may_cancel
                else drop_replaced_retractions(rows, operator.node.accumulation),
            )
            continue
        if next_route.operator.takes_as_rows(next_route.edge):
            ordered = asks_for_order(next_route.operator.node)
            rows = to_rows(changes, operator.node, next_route.edge_index, ordered=ordered)
            deliver(next_route, None, rows, (), outgoing)
            continue
        frame = _select_needed(next_route.operator, next_route.edge.apply(changes))
        for target_slot, part in partition_by_slot(frame, next_route.operator.node, plan.slots):
            _append_block(outgoing[target_slot], next_route, "changes", part)


def _select_needed(operator: Operator, changes: pl.DataFrame) -> pl.DataFrame:
    """Changes with what the operator looks at, where that is known."""
    if not isinstance(operator.node, graph.Aggregation):
        return changes
    return changes.select(
        dict.fromkeys(
            [
                *operator.node.keys,
                *partials_of(operator.node).input_columns,
                "event_time",
                "window_start",
                "window_end",
                "op",
            ]
        ).keys()
    )


def _append_block(body: Body, next_route: Route, kind: str, frame: pl.DataFrame) -> None:
    if not frame.is_empty():
        body.blocks.append(Block.of(next_route.target, kind, frame, channel=f"{next_route.edge_index}/"))
