"""Wrong changes to the search for row patterns."""

from mutants.mutant import Mutant

ROWS = [
    Mutant("patterns/sql/search.py", "context.rows[row][self.time_index] >= until", "context.rows[row][self.time_index] > until", "the bound of a row pattern is inside it"),
    Mutant("patterns/sql/search.py", "watermark >= until)", "watermark > until)", "a row pattern waits a tick longer than its bound"),
    Mutant("patterns/sql/search.py", "                return False\n            raise NeedsMoreRows\n", "                return False\n            return False\n", "a row pattern does not wait for rows that may come"),
    Mutant("patterns/sql/search.py", "after if loops[loop] == row else place + 1", "place + 1", "what takes no row is repeated"),
    Mutant("patterns/sql/search.py", "tuple(loop_start == row for loop_start in loops)", "()", "what was tried inside of a loop counts as tried outside of it", equivalent="who has taken rows in this round of the loop can do one thing more, begin another round here, and that was tried by whoever began one here"),
    Mutant("patterns/sql/search.py", " if self.queries\n            else (place, row, still)", " if not self.queries else (place, row, still)", "what was tried does not depend on how rows were mapped"),
    Mutant("patterns/sql/search.py", "row == 0 and not context.has_rows_before", "row == 0", "every batch begins a partition"),
    Mutant("patterns/sql/search.py", "del context.labels[row - start :], shown[row - start :]", "del context.labels[row - start :]", "rows of ways that led to nothing decide what is shown"),
    Mutant("patterns/sql/grammar.py", 'return Repetition(part, least, most, self.accept("?"))', 'return Repetition(part, least, most, self.accept("?") and False)', "a reluctant repetition is greedy"),
    Mutant("patterns/sql/matcher.py", "first = max(0, start - self._rows_back)", "first = start", "PREV forgets the rows of earlier batches"),
    Mutant("patterns/sql/matcher.py", "max(0, matched - first), partition.has_rows_before or first > 0", "max(0, matched - first), first > 0", "a partition begins again when nothing of it is dropped"),
    Mutant("patterns/sql/matcher.py", "matched = max(matched, start + len(found.labels))", "matched = start + len(found.labels)", "a row of a long match is unmatched after a shorter one"),
    Mutant("patterns/sql/matcher.py", "compiled.next_start(found.labels, start), number + 1", "compiled.next_start(found.labels, start), number", "matches are not counted"),
    Mutant("patterns/sql/matcher.py", "pl.concat([begins, known_keys]).unique()", "begins.unique()", "partitions in which a match has begun are passed over"),
    Mutant("patterns/sql/skip.py", 'places[0] if self.kind == "to_first" else places[-1]', 'places[-1] if self.kind == "to_first" else places[0]', "SKIP TO FIRST goes to the last"),
    Mutant("patterns/sql/compiled.py", "compiler.rows_back - (0 if _unsettled_queries(compiler, number) else rows_before(self.program, number))", "0", "a condition looks back no further than its match"),
    Mutant("patterns/sql/match_context.py", "            if not self.is_ended:\n                raise NeedsMoreRows\n", "", "NEXT does not wait for the row it asks for"),
    Mutant("patterns/sql/match_context.py", "return self.start + offset if offset <= upper else None", "return self.start + offset", "RUNNING FIRST sees rows after the current one"),
    Mutant("engine/operators/match_recognize.py", "due = partition.rows[partition.search_start][time_index] + span", "due = partition.rows[partition.search_start][time_index] + span + 1", "time that passes decides a row pattern a tick late"),
]  # fmt: skip
