"""Wrong changes to windows made of slices, to progress, chains and state."""

from mutants.mutant import Mutant

SLICES = [
    # windows
    Mutant(
        "windows.py",
        "((at - self.size - self.offset) // self.every + 1)",
        "((at - self.size - self.offset - 1) // self.every + 1)",
        "an event at a window's end belongs to it",
    ),
    Mutant(
        "windows.py", "self.offset + (at - self.offset) // self.every", "(at - self.offset) // self.every", "the last window ignores the offset"
    ),
    Mutant("windows.py", "return gcd(self.size, self.every)", "return self.every", "slices are as wide as the slide, though edges divide them"),
    Mutant(
        "engine/windowing.py",
        "return (at - offset) // width * width + offset",
        "return (at - offset) // width * width",
        "slices ignore the offset",
    ),
    Mutant(
        "engine/windowing.py",
        "return ((at - (w.size + w.offset)) // w.every + 1) * w.every + (w.offset + w.size)",
        "return ((at - (w.size + w.offset)) // w.every) * w.every + (w.offset + w.size)",
        "the first window is one too early",
    ),
    Mutant(
        "engine/windowing.py",
        'pl.int_ranges("_end", pl.col("_last") + 1, w.every)',
        'pl.int_ranges("_end", pl.col("_last"), w.every)',
        "the last window of a slice is left out",
    ),
    Mutant("engine/windowing.py", "if w.size > w.every:", "if w.size > 2 * w.every:", "windows that overlap once count as not overlapping"),
    Mutant(
        "engine/windowing.py",
        "return GREATEST if at >= GREATEST else window.first_end(at) - window.every",
        "return GREATEST if at >= GREATEST else window.first_end(at)",
        "windows fire before the watermark has reached their end",
    ),
    # judging rows
    Mutant(
        "engine/rows.py",
        "grid.end_above(None if prior is None else prior - windowing.lateness)",
        "grid.end_above(prior)",
        "lateness is ignored when rows are judged by the clock of earlier batches",
    ),
    Mutant(
        "engine/rows.py",
        "grid.end_above(None if prior is None else prior - windowing.lateness)",
        "grid.end_above(None if prior is None else prior - windowing.lateness - 1)",
        "a row is refused one tick too late",
    ),
    Mutant(
        "engine/rows.py",
        "closed = grid.end_above(progress.low) if windowing.once else LEAST",
        "closed = LEAST",
        "a window that showed its only pane takes rows",
    ),
    Mutant(
        "engine/rows.py",
        'refused = frame.filter(pl.col("_from") > pl.col("_first"))',
        'refused = frame.filter(pl.col("_from") > last)',
        "a row that only some of its windows refuse is not reported",
    ),
    Mutant(
        "engine/rows.py",
        'taken = frame.filter(pl.col("_from") <= last)',
        'taken = frame.filter(pl.col("_from") < last)',
        "a row that only its last window takes is lost",
    ),
    Mutant(
        "engine/rows.py",
        'pl.when(pl.col("_late") > pl.col("_first")).then(pl.lit("late"))',
        'pl.when(pl.col("_late") >= pl.col("_first")).then(pl.lit("late"))',
        "a row of a closed window is called late",
    ),
    Mutant("engine/rows.py", '- pl.col("_first")) // every', '- pl.col("_first")) // every + 1', "one window too many is reported missing"),
    Mutant(
        "engine/source.py",
        'grid.first_end(pl.col("_clock") - give)',
        'grid.first_end(pl.col("_clock"))',
        "delay and lateness are ignored within a batch",
    ),
    Mutant(
        "engine/source.py",
        "clock.cum_max().forward_fill()",
        "clock.max().forward_fill()",
        "a row is judged by rows that came after it",
    ),
    Mutant(
        "engine/source.py",
        'pl.col("event_time") > pl.col("ingestion_time") + read.watermark.ahead',
        'pl.col("event_time") >= pl.col("ingestion_time") + read.watermark.ahead',
        "an event at the very bound of the future is set aside",
    ),
    Mutant("engine/source.py", "// grid.window.every + 1", "// grid.window.every", "an event of the future misses one window too few"),
    Mutant(
        "watermarks.py",
        'return pl.min_horizontal("event_time", "ingestion_time")',
        'return pl.col("event_time")',
        "a vehicle whose clock runs fast pushes the watermark ahead",
    ),
    # progress
    Mutant("engine/progress.py", "self.clock - delay", "self.clock", "the watermark stays no delay behind the clock"),
    Mutant(
        "engine/progress.py",
        "return min(known) if len(known) == len(waiting) else None",
        "return max(known) if len(known) == len(waiting) else None",
        "the low watermark is the greatest of all partitions'",
    ),
    Mutant(
        "engine/progress.py",
        "return min(known) if len(known) == len(waiting) else None",
        "return min(known) if known else None",
        "a partition that was never seen holds nothing back",
    ),
    Mutant(
        "engine/progress.py",
        "Progress(channels, _greatest(self.low, _candidate(channels, said)))",
        "Progress(channels, _candidate(channels, said))",
        "the watermark goes back",
    ),
    Mutant("engine/progress.py", ">= words.idle_after", "> words.idle_after", "a partition falls idle a tick too late"),
    Mutant(
        "engine/progress.py",
        "floor=_greatest(channel.floor, self.low), idle=False",
        "idle=False",
        "a partition that wakes up is judged by its old clock",
    ),
    Mutant(
        "engine/progress.py",
        "waiting = [marks[name] for name in said if not channels[name].idle]",
        "waiting = [marks[name] for name in said]",
        "idle partitions hold the watermark back",
    ),
    Mutant(
        "engine/progress.py",
        "clock=_greatest(channel.clock, words.clock), last_active=now",
        "clock=words.clock, last_active=now",
        "the clock of a partition goes back",
    ),
    Mutant("engine/progress.py", "last_active=now, idle=False)", "idle=False)", "a partition that brings rows is still counted as quiet"),
    Mutant("engine/progress.py", "return max((mark for mark in marks.values()", "return min((mark for mark in marks.values()", "when all are idle, the slowest decides"),
    # firing
    Mutant("engine/firing.py", 'settles = 0 if firing.timing == "early" else 1', "settles = 1", "early panes are counted as settled"),
    Mutant("engine/firing.py", 'pl.col("_shown") + 1', 'pl.col("_shown")', "the index of panes does not grow"),
    Mutant(
        "engine/firing.py",
        "pl.col(column).fill_null(yes.cast(pl.Int64))",
        "pl.col(column).fill_null(0)",
        "the on-time pane that was not remembered is not counted",
    ),
    Mutant("engine/firing.py", '(end - 1).alias("event_time")', 'end.alias("event_time")', "a pane's time is past its window"),
    Mutant(
        "engine/firing.py",
        "(end + self.operator.horizon <= self.low)",
        "(end <= self.low)",
        "panes are called final though late rows may come",
    ),
    Mutant(
        "engine/firing.py",
        "(end + self.operator.horizon <= self.low)",
        "(end + self.operator.horizon < self.low)",
        "a pane at the end of its lateness is not called final",
    ),
    Mutant("engine/firing.py", "pl.lit(once) | ", "", "the only pane of a window is not called final"),
    Mutant(
        "engine/firing.py",
        "shown = [moment.panes(_was(pairs, had, firing), panes.RETRACT), moment.panes(pairs.filter(new), panes.ADD)]",
        "shown = [moment.panes(pairs.filter(new), panes.ADD)]",
        "old values are not taken back in the output",
    ),
    Mutant(
        "engine/firing.py",
        "changes = [moment.panes(_was(pairs, had & changed, firing), panes.RETRACT), moment.panes(pairs.filter(new & changed), panes.ADD)]",
        "changes = [moment.panes(pairs.filter(new & changed), panes.ADD)]",
        "the next aggregation counts old values and new ones",
    ),
    Mutant("engine/firing.py", "changed = ~(new & same)", "changed = new | had", "values that did not change travel on",
           equivalent="a value withdrawn and given anew in one batch cancels out in the next operator (`PaneWindows._net`)"),
    Mutant(
        "engine/firing.py",
        'if output == "value" and plus.height < panes_.height:',
        "if plus.height < panes_.height:",
        "retractions are left out where they were asked for",
    ),
    Mutant("engine/firing.py", 'settled = pl.lit(-1, pl.Int64) if self.timing == "early" else pl.col("_settled")', 'settled = pl.col("_settled")', "early panes have a settled index"),
    # chains
    Mutant(
        "engine/changes.py",
        'pl.when(pl.col("op") == panes.ADD).then(1).otherwise(-1)',
        'pl.when(pl.col("op") == panes.ADD).then(1).otherwise(0)',
        "withdrawals are taken for nothing",
    ),
    Mutant("engine/changes.py", "return min(known) if low0 is None else max(low0, min(known))", "return max(known) if low0 is None else max(low0, max(known))", "the fastest of the operators before decides"),
    Mutant("engine/changes.py", "if len(known) < len(upstream):", "if not known:", "an operator before that has no watermark yet does not count"),
    Mutant("engine/changes.py", 'partials.filter(pl.col("_n") > 0)', "partials", "groups of which nothing is left are shown"),
    Mutant("engine/changes.py", 'or (timing == "late" and node.windowing.once)', "", "a trigger that fires once fires late"),
    Mutant("engine/changes.py", '(timing == "early" and not node.same_window) or ', "", "another windowing shows panes early"),
    Mutant("engine/changes.py", '.unique() if timing == "on_time" else due', '.unique() if timing == "late" else due', "on time only touched groups are shown"),
    Mutant("engine/changes.py", 'expire(id, "rows", low - horizon)', 'expire(id, "rows", low)', "rows of later aggregations are forgotten when their window is complete"),
    Mutant("engine/changes.py", 'ordered = ["event_time"] if self.partials.ordered else []', "ordered: list[str] = []", "which value is the latest is forgotten"),
    # state
    Mutant("engine/rows.py", 'state.expire(id, "slices", after.low - lateness - leaving)', 'state.expire(id, "slices", after.low - leaving)', "slices are forgotten though late rows may come"),
    Mutant("engine/rows.py", '.expire(id, "panes", after.low - lateness)', '.expire(id, "panes", after.low)', "the numbers of panes are forgotten within the lateness"),
    Mutant("engine/state.py", "kept = tuple(chunk for chunk in table.chunks if chunk.high > before)", "kept = tuple(chunk for chunk in table.chunks if chunk.high > before + 1)", "state expires a tick too early"),
    Mutant("engine/state.py", "chunk.high > low and chunk.low <= high", "chunk.high > low and chunk.low < high", "a chunk that begins with the last window is overlooked"),
    Mutant("engine/state.py", "merged = layout.merge(pl.concat([c.frame for c in alike]))", "merged = layout.merge(pl.concat([c.frame for c in alike[1:]]))", "merging chunks loses one"),
    Mutant("engine/state.py", 'layout.high.max().alias("high")', 'layout.high.min().alias("high")', "a chunk counts as old as its oldest row"),
    # partials and slots
    Mutant("engine/partials.py", 'return [pl.col("_n").sum(), *made]', 'return [pl.col("_n").max(), *made]', "merged partials forget how many rows they hold"),
    Mutant("engine/partials.py", "rows = rows.sort(*ORDER)", "rows = rows.sort(*reversed(ORDER))", "the latest row is the one that came last"),
    Mutant("engine/source.py", "slot = hashing.key_groups(frame, keys).astype(np.int32) * slots // hashing.KEY_GROUPS", "slot = hashing.key_groups(frame, keys).astype(np.int32) % slots", "a slot holds key groups that are no range"),
    Mutant("engine/stage.py", "for to, part in by_slot(frame, list(way.operator.node.keys), plan.slots):", "for to, part in by_slot(frame, list(operator.node.keys), plan.slots):", "panes go to the slot of the key they had"),
    # running sums
    Mutant(
        "engine/rows.py",
        "leaving = self.grid.window.every if self.running is not None else 0",
        "leaving = 0",
        "slices are forgotten before they are taken out of the running sums",
    ),
    Mutant(
        "engine/running.py",
        'before - size, high - size, closed="left"',
        'before - size, high - size, closed="right"',
        "slices leave the running sums a window too early",
    ),
    Mutant(
        "engine/running.py",
        "self.total(pl.concat([moved.missed, moved.moves.select(self.nothing.columns)]))",
        "self.total(moved.moves.select(self.nothing.columns))",
        "late rows are not kept in the running sums",
    ),
    Mutant(
        "engine/running.py",
        "odd = slices.filter(pl.any_horizontal(pl.col(self.rare).ne_missing(0.0)))",
        "odd = slices.clear()",
        "what is infinite is not in running sums",
    ),
    Mutant(
        "engine/running.py",
        ".fill_null(high + every)",
        ".fill_null(high)",
        "the last window of running sums is not shown",
    ),
    Mutant("engine/running.py", '.filter(pl.col("_n") > 0)', "", "windows without rows are shown where sums run along"),
]  # fmt: skip
