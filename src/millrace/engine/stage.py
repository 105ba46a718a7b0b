"""One stage in one slot: all operators of that depth, of all jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from functools import lru_cache

import polars as pl

from millrace import graph, lookups
from millrace.engine import state as states
from millrace.engine.exchange import Block, Body, Packet, dump, merge
from millrace.engine.isolation import (
    AT_WORK,
    NO_ROWS,
    NOT_THEIRS,
    STRUCTURAL,
    culprits,
    failed,
    is_of_a_user,
    letters,
)
from millrace.engine.operators import windows
from millrace.engine.operators.chained import PaneWindows
from millrace.engine.operators.deduplicate import Deduplicated
from millrace.engine.operators.emit import PAIR, Stepped, netted, settled
from millrace.engine.operators.interval_join import IntervalPairs
from millrace.engine.operators.match import Matches
from millrace.engine.operators.match_contiguous import ContiguousMatches
from millrace.engine.operators.match_rules import RuleMatches
from millrace.engine.operators.ordered_windows import SequenceWindows
from millrace.engine.operators.partials import partials_of
from millrace.engine.operators.process import Processes
from millrace.engine.operators.sliced_windows import RowWindows
from millrace.engine.operators.table_join import Versions
from millrace.engine.operators.windows import CellWindows
from millrace.engine.plan import Operator, Plan, Route
from millrace.engine.source import by_slot, hand_on
from millrace.engine.state import SlotState
from millrace.errors import StateUnreadable
from millrace.graph.build.join import IntervalJoin, TableJoin
from millrace.graph.build.rules import Rules
from millrace.patterns.cep.contiguous import Contiguous
from millrace.values.calls import ordinary_errors


def forget() -> None:
    """Drops what this process remembers of state, as if it had ended."""
    windows.forget()
    states.forget()


def step(
    plan: Plan, depth: int, slot: int, state: SlotState, bodies: Sequence[bytes]
) -> tuple[SlotState, list[Packet]]:
    """A batch through a stage: its packets in; the state after it, and packets for the next stage or the end, out."""
    incoming = merge(bodies)
    operators = {operator.id: operator for operator in plan.stage(depth)}
    last = depth == plan.depth
    outgoing = [_onward(incoming) for _ in range(1 if last else plan.slots)]
    own = outgoing[0] if last else outgoing[slot]
    for body in outgoing if slot == 0 else ():
        body.sources += incoming.sources
    own.counts |= incoming.counts
    own.reaches |= incoming.reaches
    own.blocks += [block for block in incoming.blocks if block.target not in operators]
    with lookups.answering(incoming.now) as answers:
        state = _all(plan, operators, slot, state, incoming, (outgoing, own))
    for name, count in answers.counts.items():
        own.counts[name] = own.counts.get(name, 0) + count
    state = state.only({operator.id for operator in plan.operators if operator.depth == depth})
    if last:
        return state, [Packet(slot, own.encode())]
    return state, [Packet(to, body.encode()) for to, body in enumerate(outgoing)]


def _all(
    plan: Plan,
    operators: dict[str, Operator],
    slot: int,
    state: SlotState,
    incoming: Body,
    go: tuple[list[Body], Body],
) -> SlotState:
    """Every operator's part; what one job's code raises is that job's own affair."""
    outgoing, own = go
    for id, operator in operators.items():
        blocks = [block for block in incoming.blocks if block.target == id]
        AT_WORK.jobs = operator.jobs
        try:
            if not {f"failed/{job}" for job in operator.jobs} <= {block.target for block in own.blocks}:
                with ordinary_errors():
                    state = _step(plan, operator, slot, state, (incoming, blocks), (outgoing, own))
        except NOT_THEIRS:
            raise
        except Exception as error:
            if not plan.isolates:
                raise
            dead = _offending(plan, operator, state, incoming, blocks)
            own.blocks += [failed(job, f"in {id}", error, dead) for job in operator.jobs]
    return state


def _step(
    plan: Plan,
    operator: Operator,
    slot: int,
    state: SlotState,
    come: tuple[Body, list[Block]],
    go: tuple[list[Body], Body],
) -> SlotState:
    """One operator's part: what comes to it, and the packets that go on."""
    outgoing, own = go
    stepped = _stepped(operator, state, come)
    for body in outgoing:
        body.lows[operator.id] = stepped.low
    if slot == 0 and stepped.reaches:
        own.reaches[operator.id] = [astuple(reach) for reach in stepped.reaches]
    _send(plan, operator, stepped, outgoing, own)
    _hand_on(plan, operator, stepped, come[0], go)
    return stepped.state


def _stepped(operator: Operator, state: SlotState, come: tuple[Body, list[Block]]) -> Stepped:
    """The operator's own part. Rows as they are stored that do not fit those that come are no fault of the job."""
    try:
        return _machine(operator).step(state, *come)
    except STRUCTURAL as error:
        if is_of_a_user(error) or _fails_without_state(operator, come):
            raise
        said = str(error).strip().partition("\n")[0]
        raise StateUnreadable(
            f"{operator.id}: rows as they are stored do not fit those that come ({type(error).__name__}: {said}); mend what migrate= made of them, "
            f"restore an earlier savepoint, or start at the present, without state: --reset {operator.jobs[0]}"
        ) from error


def _fails_without_state(operator: Operator, come: tuple[Body, list[Block]]) -> bool:
    """Whether the rows that come are to blame, whatever is stored."""
    try:
        _machine(operator).step(SlotState(), *come)
    except Exception:  # noqa: BLE001 - whatever it is, state is not to blame
        return True
    return False


def _offending(
    plan: Plan, operator: Operator, state: SlotState, incoming: Body, blocks: list[Block]
) -> pl.DataFrame:
    """Of what came to an operator, the rows with which it fails."""

    def again(frames: Sequence[pl.DataFrame]) -> None:
        parts = [
            replace(block, data=dump(frame))
            for block, frame in zip(blocks, frames, strict=True)
            if not frame.is_empty()
        ]
        outgoing = [_onward(incoming) for _ in range(plan.slots)]
        _step(plan, operator, 0, state, (incoming, parts), (outgoing, outgoing[0]))

    found = culprits(again, [block.frame for block in blocks])
    return pl.concat(
        [
            NO_ROWS.drop("reason"),
            *(
                letters(bad, block.channel.partition("/")[2] or None)
                for bad, block in zip(found, blocks, strict=True)
            ),
        ],
        how="diagonal_relaxed",
    )


@lru_cache(maxsize=1024)
def _machine(operator: Operator) -> RowWindows | CellWindows | SequenceWindows | PaneWindows:
    if isinstance(operator.node, graph.Process):
        return Processes(operator)
    if isinstance(operator.node, graph.Deduplication):
        return Deduplicated(operator)
    if isinstance(operator.node, Rules):
        return RuleMatches(operator)
    if isinstance(operator.node, graph.Match):
        made = Matches(operator)
        return ContiguousMatches(operator) if Contiguous.suits(made.matcher) else made
    if isinstance(operator.node, graph.MatchRows):
        from millrace.engine.operators.match_recognize import RowMatches

        return RowMatches(operator)
    if isinstance(operator.node, IntervalJoin):
        return IntervalPairs(operator)
    if isinstance(operator.node, TableJoin):
        return Versions(operator)
    if not operator.over_rows:
        return PaneWindows(operator)
    if operator.node.windowing.ordered:
        return SequenceWindows(operator)
    return CellWindows(operator) if operator.node.windowing.sliced is None else RowWindows(operator)


def _onward(incoming: Body) -> Body:
    """What the next stage must know besides rows."""
    return Body(incoming.now, incoming.end, lows=dict(incoming.lows))


def _send(plan: Plan, operator: Operator, stepped: Stepped, outgoing: list[Body], own: Body) -> None:
    if stepped.late is not None:
        own.blocks.append(Block.of(f"late/{operator.id}", "late", stepped.late))
    if stepped.dead is not None:
        own.blocks.append(Block.of("dead", "dead", stepped.dead))
    _send_from(plan, operator, "out", (stepped.shown, stepped.changes), (outgoing, own))
    for port, said in stepped.sides.items():
        _send_from(plan, operator, port, (said, said.drop(PAIR)), (outgoing, own))


def _hand_on(
    plan: Plan, operator: Operator, stepped: Stepped, incoming: Body, go: tuple[list[Body], Body]
) -> None:
    """Rows that stay rows: to operators of this stage, which find them among what came in, or onward."""
    outgoing, own = go
    for way in plan.routes_from(operator) if stepped.rows else ():
        rows = stepped.rows.get(way.edge.via)
        if rows is None:
            continue
        if way.operator is not None and way.operator.depth > operator.depth:
            hand_on(way, rows, outgoing)
            continue
        here = Body(incoming.now)
        hand_on(way, rows, [here])
        for block in here.blocks:
            (incoming if block.target == way.target and way.operator else own).blocks.append(block)


def _send_from(
    plan: Plan,
    operator: Operator,
    port: str,
    said: tuple[pl.DataFrame, pl.DataFrame],
    go: tuple[list[Body], Body],
) -> None:
    """What leaves by one port, as it is shown and as it travels on."""
    (shown, changes), (outgoing, own) = said, go
    for way in plan.routes_from(operator, port):
        if way.edge.read is not None:  # rows, which are handed on
            continue
        if (shown if way.operator is None else changes).is_empty():
            continue
        if way.operator is None:
            rows = way.edge.apply(shown)
            _append(
                own,
                way,
                "panes",
                netted(rows) if way.edge.by_row else settled(rows, operator.node.windowing.output),
            )
            continue
        frame = _lean(way.operator, way.edge.apply(changes))
        for to, part in by_slot(frame, list(way.operator.node.keys), plan.slots):
            _append(outgoing[to], way, "changes", part)


def _lean(operator: Operator, changes: pl.DataFrame) -> pl.DataFrame:
    """Changes with what the operator looks at, where that is known."""
    if not isinstance(operator.node, graph.Aggregation):
        return changes
    return changes.select(
        dict.fromkeys(
            [
                *operator.node.keys,
                *partials_of(operator.node).needs,
                "event_time",
                "window_start",
                "window_end",
                "op",
            ]
        ).keys()
    )


def _append(body: Body, way: Route, kind: str, frame: pl.DataFrame) -> None:
    if not frame.is_empty():
        body.blocks.append(Block.of(way.target, kind, frame, channel=f"{way.index}/"))
