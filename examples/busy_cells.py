"""Where most vehicles came by, minute by minute, asked of the events that `make demo` has left in its log."""

import millrace as mr
from millrace import aggregates, watermarks, windows
from millrace.geo import geocell
from millrace.transit import CELL_COUNTS, POSITIONS

busy = mr.Job(
    "busy-cells",
    mr.read(POSITIONS, watermark=watermarks.bounded("1s"))
    .select("vehicle_id", geocell=geocell())
    .window(windows.fixed("1m"), lateness="1m")
    .by("geocell").aggregate(count=aggregates.distinct("vehicle_id"))
    .write(CELL_COUNTS),
)  # fmt: skip
panes = mr.replay(busy, POSITIONS, log="embedded:millrace-data/demo/spark/log")
print(panes.select("geocell", "count", "window_start").top_k(5, by="count"))
