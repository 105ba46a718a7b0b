"""Wrong changes to how far runs vouch for topics, and to how others follow that."""

from mutants.mutant import Mutant

CHAINED = [
    Mutant("log/writer_watermarks.py", "self.offsets[partition] <= offset", "True", "a watermark holds before the rows of its commit are read"),
    Mutant("log/writer_watermarks.py", "self.offsets[partition] <= offset", "self.offsets[partition] < offset", "a watermark holds only when a further row is read"),
    Mutant("log/writer_watermarks.py", "missing |= ends.keys() - found.keys()", "pass", "a writer that has not vouched yet is left out"),
    Mutant("log/writer_watermarks.py", "min(watermark, least.get(p, watermark))", "max(watermark, least.get(p, watermark))", "of several writers the greatest watermark counts"),
    Mutant("log/embedded/watermark_table.py", "order by marker desc limit 1", "order by marker limit 1", "the oldest watermark of a writer counts"),
    Mutant("log/owners.py", "log.withdraw_watermarks(topic, old_owner.writer)", "pass", "a writer that was replaced holds readers back"),
    Mutant("engine/output_watermarks.py", "watermark - operator.horizon - (time_before_end(windowing) or 0)", "watermark - (time_before_end(windowing) or 0)", "results that may be corrected are vouched for"),
    Mutant("engine/output_watermarks.py", "watermark - operator.horizon - (time_before_end(windowing) or 0)", "watermark - operator.horizon", "panes at the time of a row are vouched for as if at the end"),
    Mutant("engine/output_watermarks.py", "return watermark - within", "return watermark", "rows within the time of copies are vouched for"),
    Mutant("engine/output_watermarks.py", "None if {*paused}.issuperset(route.jobs) else self._route_watermark(route, results)", "self._route_watermark(route, results)", "a paused job is vouched for"),
    Mutant("engine/output_watermarks.py", "least[topic] = min(known)", "least[topic] = max(known)", "of several routes to a topic the furthest counts"),
    Mutant("engine/followed_topics.py", "any(_sets_time(step) for step in edge.steps)", "False", "rows are vouched for though a step gives them another time"),
    Mutant("engine/progress.py", "is_active = report.has_rows or report.moves(partition.clock)", "is_active = report.has_rows", "a partition whose writers go on is idle"),
    Mutant("engine/progress.py", "if report.contradicts(partition.clock):", "if False:", "the clock of another watermark counts for that of the writers"),
    Mutant("runners/upstream.py", "max(marks[p] for marks in (before, found) if p in marks)", "found.get(p, before.get(p))", "a watermark goes back with a new writer"),
    Mutant("runners/upstream.py", "for topic, known in watermarks.items() if known", "for topic, known in watermarks.items()", "batches come for nothing where nobody vouches"),
    Mutant("runners/local.py", "or end.watermarks != start.watermarks", "", "a watermark alone brings no batch"),
]  # fmt: skip
