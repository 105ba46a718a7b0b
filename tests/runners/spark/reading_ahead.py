"""Two batches, the second read ahead, in an interpreter of its own:
`python reading_ahead.py LOG FOLDER MISHAP`; prints what the second one brought.

What befalls the processes that read ahead: `none`; they are `killed` before they could begin; they are
`stalled` until it is too late, or `stuck` when they have begun; they are asked for something `broken` first.
"""

import fcntl
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import IO


def hold(request: Path) -> IO[bytes]:
    """Does with a request what a process does that then gets no further."""
    file = request.open("rb")
    fcntl.flock(file, fcntl.LOCK_EX)
    request.rename(request.with_suffix(".begun"))
    return file


def main(url: str, place: Path, mishap: str, helpers: set[int]) -> None:
    """Reads both, and says how."""
    from pyspark.sql.streaming.datasource import ReadMaxRows

    from millrace.log import open_log
    from millrace.runners.spark import read_ahead
    from millrace.runners.spark.source import LogStreamReader
    from runners.spark.test_source import Clock, reader

    for helper in helpers if mishap in ("stalled", "killed", "stuck") else ():
        os.kill(helper, signal.SIGKILL if mishap == "killed" else signal.SIGSTOP)
        os.waitpid(helper, os.WUNTRACED)
    clock, limit = Clock(), ReadMaxRows(60)
    feed = replace(reader(open_log(url), clock)._spec, query_name="query")
    source = LogStreamReader(feed, clock=clock)
    start = source.initialOffset()
    first = source.latestOffset(start, limit)
    shares = source.partitions(start, first)
    asked = [each for share in shares for each in share.following]
    if mishap == "broken":
        read_ahead.request_read(feed, replace(asked[0], ranges=[("nowhere", 0, 0, 1)]))
    for share in shares:
        list(source.read(share))
    (desk,) = place.iterdir()
    deadline = time.monotonic() + 30
    while (
        mishap in ("none", "broken")
        and len(list(desk.glob("*.ready"))) < len(asked)
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    held = [hold(request) for request in desk.glob("*.asked")] if mishap == "stuck" else []
    ready = len(list(desk.glob("*.ready")))
    clock.now += 7
    second = source.latestOffset(first, limit)
    batches = [batch for share in source.partitions(first, second) for batch in source.read(share)]
    counts = {
        "bodies": [body.hex() for batch in batches for body in batch["packet"].to_pylist()],
        "asked": len(asked),
        "ready": ready,
        "offsets": [first, second],
    }
    sys.stdout.write(json.dumps(counts))
    sys.stdout.flush()
    for file in held:
        file.close()
    for helper in helpers if mishap in ("stalled", "stuck") else ():
        os.kill(helper, signal.SIGKILL)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    os.environ["MILLRACE_AHEAD"] = sys.argv[2]
    from millrace.runners.processes import list_tree
    from millrace.runners.spark import read_ahead

    read_ahead.start_processes()  # before anything is loaded that has threads
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], set(list_tree(os.getpid())) - {os.getpid()})
