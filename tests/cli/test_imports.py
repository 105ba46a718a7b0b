"""What the command line loads: help must come at once, so it loads no data libraries."""

import subprocess
import sys

PROGRAM = """
import sys
from millrace.cli.main import main
assert main([*sys.argv[1:], "--help"]) == 0
heavy = {"millrace.config", "numpy", "polars", "pyarrow", "pyspark"} & sys.modules.keys()
assert not heavy, heavy
"""


def test_help_loads_no_data_libraries() -> None:
    for command in ([], ["run"], ["ingest", "mqtt"], ["topics", "tail"], ["replay"]):
        ended = subprocess.run([sys.executable, "-c", PROGRAM, *command], capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
