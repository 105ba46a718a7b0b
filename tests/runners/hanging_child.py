"""A run whose job hangs, in a process of its own: `python hanging_child.py LOG STATE SECONDS RUNNER`.
STATE.hangs is there once it does.
"""

import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import logging

    import polars as pl

    import millrace as mr
    from millrace.log import open_log
    from millrace.runners import signals
    from runners.stopping_jobs import BAD, events, good, settings

    signals.REMIND_AFTER = float(sys.argv[3])
    sign = Path(f"{sys.argv[2]}.hangs")
    logging.basicConfig(stream=sys.stderr, format="%(message)s")

    def check(frame: pl.DataFrame) -> pl.DataFrame:
        """Never returns where there are rows."""
        if frame.height:
            sign.touch()
            while True:
                time.sleep(0.01)
        return frame

    job = mr.Job("bad", events().map_batches(check).group_by("key").sum("number", name="total").write(BAD))
    try:
        mr.run(
            good(),
            job,
            on="spark" if sys.argv[4] == "spark" else "local",
            settings=settings(open_log(sys.argv[1]), Path(sys.argv[2]), "test"),
        )
    except KeyboardInterrupt:
        sys.exit(130)
