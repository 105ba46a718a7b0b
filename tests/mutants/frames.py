"""Wrong changes to row frames."""

from mutants.mutant import Mutant

FRAMES = [
    Mutant("engine/operators/over_frames.py", "pl.col(ROW_TIME).shift(1) >= node.ttl", "pl.col(ROW_TIME).shift(1) > node.ttl", "a key begins anew a millisecond too late"),
    Mutant("engine/operators/over_frames.py", 'offset=f"{lower - 1}i"', 'offset=f"{lower}i"', "a frame lacks its first row"),
    Mutant("engine/operators/over_frames.py", "shift(-lead.n).over(GROUP) - time < lead.within)", "shift(-lead.n).over(GROUP) - time <= lead.within)", "a row at the bound of lead is seen"),
    Mutant("engine/operators/over_rows.py", "over(self.node.keys) <= self._length", "over(self.node.keys) < self._length", "a row too few is kept of each key"),
    Mutant("engine/operators/over_range.py", "(pl.col(ROW_TIME) - lower + 1)", "(pl.col(ROW_TIME) - lower)", "a row is forgotten that is just in the frame"),
    Mutant("engine/operators/over_running.py", "(column.first() if frame.upper < 0 else column.last())", "column.first()", "rows of the same time have the total of the first of them"),
    Mutant("engine/operators/over_running.py", "pl.col(BAG_ROW) <= pl.col(ROW_NUMBER)", "pl.col(BAG_ROW) < pl.col(ROW_NUMBER)", "a float of its own size is missing in its own sum"),
    Mutant("engine/operators/over_lead.py", "(time + lead.within <= deadline)", "(time + lead.within < deadline)", "a row waits a millisecond too long for the one after it"),
    Mutant("engine/operators/over_corrections.py", "(pl.col(ROW_TIME) + 1).alias(EXPIRES_AT)", "pl.col(ROW_TIME).alias(EXPIRES_AT)", "a row is forgotten that may still be corrected"),
    Mutant("engine/operators/over_corrections.py", "return (pl.col(column) > other)", "return (pl.col(column) >= other)", "a row of the same time is taken to come after those shown"),
    Mutant("engine/operators/over_corrections.py", "open_rows, batch)", "open_rows.filter(~pl.col(IS_NEW)), batch)", "rows look back past those that came late"),
    Mutant("engine/operators/over_open_rows.py", 'return pl.concat([rows.filter(is_first).join(newest, on=ROW_ID, how="anti"), newest])', "return rows", "a corrected row counts as it was, too"),
    Mutant("engine/operators/over_rows.py", "time.top_k(self._length).min()", "time.top_k(1).min()", "one row is looked back at where several should be"),
    Mutant("engine/operators/over_corrections.py", "pl.col(ROW_TIME) >= batch.old_watermark", "pl.col(ROW_TIME) > batch.old_watermark", "a row at the watermark is shown as late"),
]  # fmt: skip
