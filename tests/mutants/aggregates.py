"""Wrong changes to what aggregates are computed of, to distinct values and to rankings."""

from mutants.mutant import Mutant

# fmt: off
AGGREGATES = [
    Mutant("aggregates/arguments.py", "return value if self.where is None else pl.when(self.where).then(value)", "return value", "every row counts"),
    Mutant("aggregates/arguments.py", "if not expr.meta.eq(values.setdefault(name, expr)):", "if values.setdefault(name, expr) is None:", "the second value of a name is dropped"),
    Mutant("aggregates/bags.py", 'return [values.implode().list.eval(in_order.filter(in_order.struct.field("v").is_first_distinct()))]', "return [values]", "merging lists of distinct values keeps copies"),
    Mutant("aggregates/bags.py", "values = rows.explode(inner.required_column, empty_as_null=True, keep_nulls=True)", "values = rows.explode(inner.required_column, empty_as_null=False, keep_nulls=False)", "groups without a distinct value are lost"),
    Mutant("aggregates/rankings.py", "descending = [*self.descending, *[True] * (len(fields) - len(self.by))]", "descending = [True] * len(fields)", "every direction is descending"),
    Mutant("aggregates/rankings.py", "descending=descending, nulls_last=True).head(self.k)", "descending=descending).head(self.k)", "nulls come first in a ranking"),
    Mutant("aggregates/rankings.py", "return [rows.implode().list.eval(self._first(pl.element()))]", "return [rows.head(self.k)]", "merged rankings are not ranked again"),
    Mutant("aggregates/rankings.py", "ranked = self._row.filter(self._row.struct.field(self.by[0]).is_not_null())", "ranked = self._row", "rows without a value to rank by are ranked"),
    Mutant("aggregates/own.py", "is_one = len(self.inner.columns) == 1 or self.argument is not None", "is_one = len(self.inner.columns) == 1", "an own aggregate of several values sees rows that do not count"),
    Mutant("graph/build/arguments.py", "if aggregate.argument.where is not None and preview.dtypes[-1] != pl.Boolean:", "if False:", "a condition may be a number"),
    Mutant("graph/build/rankings.py", "return frame.explode(RANKED, empty_as_null=False, keep_nulls=False).unnest(RANKED)", "return frame.explode(RANKED, empty_as_null=True, keep_nulls=False).unnest(RANKED)", "an empty ranking shows a row of nulls"),
    Mutant("graph/build/keys.py", "if name in schema:", "if False:", "a key may replace a column that aggregates read"),
    Mutant("graph/identity.py", '"where": None if aggregate.argument.where is None else str(aggregate.argument.where)', '"where": None', "state does not depend on the condition"),
    Mutant("engine/fingerprints.py", 'if old["parts"].get(part, digest) != digest:', 'if old["parts"].get(part, digest) is None:', "state does not depend on what texts of expressions leave out"),
]
# fmt: on
