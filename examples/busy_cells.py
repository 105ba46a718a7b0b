"""Which places had the most vehicles, minute by minute?
Reads the events that `make demo` has left in its log.
"""

import millrace as mr
from millrace import watermarks, windows
from millrace.geo import geocell
from millrace.transit import CELL_COUNTS, POSITIONS

positions = mr.read(POSITIONS, watermark=watermarks.bounded("1s")).select("vehicle_id", geocell=geocell())
each_minute = positions.window(windows.fixed("1m"), lateness="1m").group_by("geocell")
busy = mr.Job("busy-cells", each_minute.distinct("vehicle_id", name="count").write(CELL_COUNTS))

panes = mr.replay(busy, POSITIONS, log="embedded:millrace-data/demo/spark/log")
print(panes.select("geocell", "count", "window_start").top_k(5, by="count"))
