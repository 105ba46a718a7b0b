"""Wrong changes to the state machines of triggers, which model and engine share: only transcripts and their own tests can notice."""

from mutants.mutant import Mutant

MACHINES = [
    Mutant("engine/trigger_state.py", "return bool(state >= count)", "return bool(state > count)", "a count fires a row too late"),
    Mutant("engine/trigger_state.py", "return state + rows.count", "return state + 1", "a batch counts as one row"),
    Mutant("engine/trigger_state.py", "return rows.clock + delay if state is None else state", "return rows.clock + delay", "a delay begins anew with each row"),
    Mutant("engine/trigger_state.py", "return state is not None and context.clock >= state", "return state is not None and context.clock > state", "the clock is waited for a tick too long"),
    Mutant("engine/trigger_state.py", "return at is not None and (context.watermark >= at or", "return at is not None and (context.watermark > at or", "event time is waited for a tick too long"),
    Mutant("engine/trigger_state.py", "(context.watermark >= at or (ends and context.is_past_end))", "(context.watermark >= at)", "every so much event time, a window does not fire at its end"),
    Mutant("engine/trigger_state.py", "context.is_past_end or is_ready(_early(trigger), state[1], context)", "context.is_past_end", "there are no early panes"),
    Mutant("engine/trigger_state.py", "return initial_state(inner, context) if finished else after, False", "return initial_state(inner, context) if finished else after, finished", "what repeats finishes"),
    Mutant("engine/trigger_state.py", "return initial_state(inner, context) if finished else after, False", "return after, False", "what repeats does not begin anew"),
    Mutant("engine/trigger_state.py", "any(finished for _, finished in pairs)", "all(finished for _, finished in pairs)", "any_of finishes with the last of its triggers"),
    Mutant("engine/trigger_state.py", "return any(is_ready(part, part_state, context) for part, part_state in zip(inner, state, strict=True))", "return all(is_ready(part, part_state, context) for part, part_state in zip(inner, state, strict=True))", "any_of waits for all"),
    Mutant("engine/trigger_state.py", "return all(done or is_ready(part, part_state, context)", "return any(done or is_ready(part, part_state, context)", "all_of waits for one"),
    Mutant("engine/trigger_state.py", "return [state[0] + 1, initial_state(inner[state[0] + 1], context)], False", "return [state[0] + 1, initial_state(inner[state[0] + 1], context)], True", "in_order finishes with the first of its triggers"),
    Mutant("engine/trigger_state.py", "            if is_ready(last, state[1], context):\n                return state, True\n", "", "until does not end"),
    Mutant("engine/trigger_state.py", "return context.is_clock_past_end", "return context.passed", "the end by the clock is that by the watermark"),
    Mutant("engine/trigger_state.py", "return context.watermark >= END_OF_STREAM", "return context.passed", "the end of the stream is that of the window"),
    Mutant("engine/trigger_state.py", "return [True, initial_state(_late(trigger), context)], trigger.has_single_pane", "return [True, initial_state(_late(trigger), context)], False", "a trigger without late panes does not finish"),
    Mutant("engine/trigger_state.py", "return sum(states)", "return max(states)", "sessions that join forget rows that were counted"),
    Mutant("engine/trigger_state.py", "return min((state for state in states if state is not None), default=None)", "return max((state for state in states if state is not None), default=None)", "sessions that join wait for the later of their times"),
    Mutant("engine/trigger_state.py", "if rows.is_past_end and all(settled for settled, _ in states):", "if any(settled for settled, _ in states):", "a session that grew past the watermark has had its pane on time"),
    Mutant("engine/trigger_state.py", "furthest = max(which for which, _ in states)", "furthest = min(which for which, _ in states)", "sessions that join fall back in their order"),
    Mutant("engine/trigger_state.py", "return (at // period + 1) * period", "return (at // period) * period + 1", "multiples of a period are wrong"),
    Mutant("engine/trigger_state.py", "return _EACH_BATCH if trigger.late is None else t.Repeatedly(trigger.late)", "return _EACH_BATCH", "a trigger for late panes is ignored"),
]  # fmt: skip
