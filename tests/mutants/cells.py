"""Wrong changes to windows kept as cells, to sessions, to windows cut by their rows, and to delays that are learned."""

from mutants.mutant import Mutant

CELLS = [
    # taking
    Mutant("engine/lateness.py", "(pl.col(WATERMARK) >= end + self.windowing.lateness)", "(pl.col(WATERMARK) > end + self.windowing.lateness)", "a cell takes rows a tick too long"),
    Mutant("engine/lateness.py", "(pl.col(WATERMARK) >= end + self.windowing.lateness)", "(pl.col(WATERMARK) >= end)", "lateness is ignored by cells"),
    Mutant("engine/lateness.py", "closed = open_windows.filter(IS_CLOSED).select(*group, pl.lit(value=True).alias(HAS_FINISHED))", "closed = open_windows.clear().select(*group, pl.lit(value=True).alias(HAS_FINISHED))", "a cell whose trigger has finished takes rows"),
    Mutant("engine/lateness.py", 'pl.when(pl.col(IS_FUTURE).any()).then(pl.lit("future")).when(pl.col(IS_LATE).any())', 'pl.when(pl.col(IS_FUTURE).any()).then(pl.lit("future")).when(pl.col(IS_LATE).all())', "a row that is late for one window and shut out of another is called closed"),
    Mutant("engine/lateness.py", "if len(merge(sorted({(s, e), (ds, de)}))) == 1", "if (s, e) == (ds, de)", "a row that touches a session that is closed is taken"),
    Mutant("engine/lateness.py", "if row_windows[IS_DOUBTFUL].any():", "if False:", "a row that is late by itself is not judged by the session it would join"),
    # assigning
    Mutant("engine/operators/sessions.py", "(furthest_end.is_null() | (pl.col(START) > furthest_end))", "(furthest_end.is_null() | (pl.col(START) >= furthest_end))", "sessions that touch are not one"),
    Mutant("engine/operators/sessions.py", "pl.col(END).cum_max().shift(1).over(keys)", "pl.col(END).shift(1).over(keys)", "a short session within a long one ends it"),
    Mutant("engine/operators/assign.py", "(pl.col(WINDOW_TIME) + gap).alias(END)", "(pl.col(WINDOW_TIME) + gap + 1).alias(END)", "sessions last a tick too long"),
    Mutant("engine/operators/assign.py", "starts = pl.int_ranges(first, last + 1, every) if size > every else last", "starts = pl.int_ranges(first, last, every) if size > every else last", "cells lack the last of the windows of a row"),
    Mutant("engine/lateness.py", "watermark >= merged[1] + lateness", "watermark >= end + lateness", "a row is judged by itself and not by the session it joins"),
    Mutant("engine/operators/assign.py", "(pl.col(WINDOW_INPUT).fill_null(0) % every + every) % every", "pl.lit(0, pl.Int64)", "all keys have the same offset"),
    # cells
    Mutant("engine/operators/windows.py", '"""Whether the time has come for which a cell waited."""\n        due = (pl.col(DUE) <= times.after) | (pl.col(CLOCK_DUE) <= times.clock)', '"""Whether the time has come for which a cell waited."""\n        due = pl.col(DUE) <= times.after', "cells do not wake up for the clock"),
    Mutant("engine/operators/windows.py", '"""Whether the time has come for which a cell waited."""\n        due = (pl.col(DUE) <= times.after) | (pl.col(CLOCK_DUE) <= times.clock)', '"""Whether the time has come for which a cell waited."""\n        due = pl.col(CLOCK_DUE) <= times.clock', "cells do not wake up for the watermark"),
    Mutant("engine/operators/windows.py", "is_alive = pl.col(END) + self.operator.horizon > times.before", "is_alive = pl.col(END) > times.before", "cells are forgotten when their window is complete"),
    Mutant("engine/operators/windows.py", "pl.col(END) + horizon > times.after,", "pl.col(END) + horizon > times.after + 1,", "cells are forgotten a tick too early"),
    Mutant("engine/operators/window_panes.py", "pl.col(PANE_COUNT).alias(PANES_BEFORE), ", "", "sessions that join count their panes together"),
    Mutant("engine/operators/windows.py", "emitted = pl.concat([self.window_panes.retract_removed(removed, times.lateness_time), emitted])", "pass", "what a session showed before it grew is not withdrawn"),
    Mutant("engine/operators/windows.py", 'removed = stored.join(moved, on=self.shape.group_columns, how="semi", nulls_equal=True)', "removed = stored.clear()", "a session that grew into another stays"),
    Mutant("engine/operators/windows.py", "newest_versions(frame, self.shape.group_columns)", 'frame.sort(STATE_VERSION).unique(self.shape.group_columns, keep="first", maintain_order=True)', "the oldest version of a cell counts"),
    Mutant("engine/operators/windows.py", "return BatchTimes(\n            before, max(before, now), END_OF_STREAM if low is not None and low >= END_OF_STREAM else max(before, now), now\n        )", "return BatchTimes(before, before, END_OF_STREAM if low is not None and low >= END_OF_STREAM else max(before, now), now)", "windows by the clock are judged by the clock of the batch before"),
    Mutant("engine/operators/windows.py", "(pl.col(ROW_TIME) >= pl.col(WATERMARK))", "(pl.col(ROW_TIME) > pl.col(WATERMARK))", "a row at the watermark counts as late for the time of panes"),
    # showing
    Mutant("engine/operators/window_panes.py", 'pl.when(end > after).then(pl.lit("early")).when(end > before).then(pl.lit("on_time"))', 'pl.when(end > after).then(pl.lit("early")).when(end >= before).then(pl.lit("on_time"))', "a pane after the one on time is on time, too"),
    Mutant("engine/operators/window_panes.py", 'pl.when(end > after).then(pl.lit("early"))', 'pl.when(end >= after).then(pl.lit("early"))', "a window that ends at the watermark is early"),
    Mutant("engine/operators/window_panes.py", 'is_forced = (pl.col("timing") == "on_time") & (windowing.on_time == "always")', 'is_forced = pl.col("timing") == "on_time"', "a pane on time comes though nothing is new and none was wanted"),
    Mutant("engine/operators/window_panes.py", "is_shown = fires & (has_new | is_forced)", "is_shown = fires", "panes come though nothing is new"),
    Mutant("engine/operators/window_panes.py", "is_shown = is_shown | (pl.col(EXPIRES) & has_new)", "is_shown = is_shown", "there is no closing pane of what is new"),
    Mutant("engine/operators/window_panes.py", "is_shown = is_shown | pl.col(EXPIRES) | pl.col(IS_CLOSED)", "is_shown = is_shown | pl.col(IS_CLOSED)", "there is not always a closing pane"),
    Mutant("engine/operators/window_panes.py", 'settled = (pl.col("timing") != "early").cast(pl.Int64)', "settled = pl.lit(1, pl.Int64)", "early panes of cells count as settled"),
    Mutant("engine/operators/window_panes.py", "pl.col(PANE_COUNT) + 1,", "pl.col(PANE_COUNT),", "the index of cells does not grow"),
    Mutant("engine/operators/window_panes.py", '(pl.col(IS_CLOSED) | pl.col(EXPIRES)).alias("final")', 'pl.col(EXPIRES).alias("final")', "the last pane of a trigger that finished is not final"),
    Mutant("engine/operators/window_panes.py", '(pl.col(IS_CLOSED) | pl.col(EXPIRES)).alias("final")', 'pl.col(IS_CLOSED).alias("final")', "the pane with which a window is dropped is not final"),
    Mutant("engine/operators/window_panes.py", '"earliest": pl.col(LOWEST_TIME), "latest": pl.col(HIGHEST_TIME)', '"earliest": pl.col(HIGHEST_TIME), "latest": pl.col(LOWEST_TIME)', "earliest and latest are exchanged"),
    Mutant("engine/operators/window_panes.py", '*([pl.lit(0, pl.Int64).alias("~_n")] if self.is_discarding else [])', "*([])", "a delta holds what was shown before"),
    Mutant("engine/operators/window_panes.py", "none.alias(LOWEST_TIME),", "", "the earliest time of a pane is that of all panes"),
    Mutant("engine/operators/window_panes.py", "pl.lit(0, pl.Int64).alias(NEW_ROWS),", "", "what was shown counts as new"),
    Mutant("engine/operators/window_panes.py", "pl.concat([retractions.select(columns), additions.select(columns)])\n", "additions.select(columns)\n", "cells do not take back what they showed"),
    # windows cut by their rows
    Mutant("engine/operators/ordered_cuts.py", "if key_window.rows_since == every:", "if key_window.rows_since > every:", "a counted window has a row too many"),
    Mutant("engine/operators/ordered_cuts.py", "if key_window.reference is not None and abs(value - key_window.reference) > threshold:", "if key_window.reference is not None and abs(value - key_window.reference) >= threshold:", "a value at the threshold ends a delta window"),
    Mutant("engine/operators/ordered_cuts.py", "key_window.rows, key_window.rows_since, key_window.reference = [], 0, value", "key_window.rows, key_window.rows_since = [], 0", "differences are measured from the first window's first row"),
    Mutant("engine/lateness.py", "(pl.col(WATERMARK) > pl.col(ROW_TIME) + by).fill_null(value=False)", "(pl.col(WATERMARK) >= pl.col(ROW_TIME) + by).fill_null(value=False)", "a row at the watermark is refused where order matters"),
    Mutant("engine/ordered_rows.py", "id, is_released = self.operator.id, pl.col(ROW_TIME) < watermark", "id, is_released = self.operator.id, pl.col(ROW_TIME) <= watermark", "rows at the watermark are released"),
    Mutant("engine/operators/ordered_windows.py", "if ended and key_window.rows_since:", "if False:", "windows that are not full at the end are not shown"),
    Mutant("engine/operators/ordered_windows.py", "rows = rows.sort(*keys, IS_NEW, *ORDER)", "rows = rows.sort(*keys, IS_NEW)", "rows are taken in the order in which they came"),
    # delays that are learned
    Mutant("engine/lag_estimate.py", "learned_watermark = candidate if learned_watermark is None else max(learned_watermark, candidate)", "learned_watermark = candidate", "the watermark goes back where the delay grows"),
    Mutant("engine/lag_estimate.py", "counts = _add_counts(estimate.counts, estimate.new_counts.items())", "counts = dict(estimate.new_counts)", "what was learned before is forgotten"),
    Mutant("engine/lag_estimate.py", "running = clock[in_partition] if before is None else np.maximum(clock[in_partition], before)", "running = clock[in_partition]", "rows are judged without the clock of earlier batches"),
]  # fmt: skip
