"""The folder in which commands are used wrongly: a program, its events, a log and the state of a run, and
files that are not what they should be.
"""

from pathlib import Path

PROGRAM = """
from dataclasses import dataclass
import millrace as mr
from millrace import watermarks, windows

@dataclass
class Reading:
    room: str
    celsius: float

READINGS = mr.Topic("input.readings", Reading, key="room", partitions=1)
WARMTH = mr.Topic("analytics.warmth", key="room", partitions=1)
rooms = mr.read(READINGS, watermark=watermarks.bounded("5s")).window(windows.fixed("1m")).group_by("room")
warmth = mr.Job("warmth", rooms.mean("celsius").write(WARMTH))
number = 5
"""
MODULES = ("thermometers", "nothing", "unfinished", "needing", "failing")
FILES = {
    "thermometers.py": PROGRAM,
    "nothing.py": "x = 1\n",
    "unfinished.py": "def (:\n",
    "needing.py": "import nosuchmodule\n",
    "failing.py": "def start():\n    return {}['key']\n\nstart()\n",
    "readings.csv": "at,room,celsius\n1772438405000,attic,21\n1772438465000,attic,22\n",
    "warm.csv": "room,event_time,celsius\nattic,1772438405000,warm\n",
    "timeless.csv": "room,celsius\nattic,5\n",
    "nonsense.jsonl": "not json\n",
    "broken.toml": "[run]\nname = 5 5\n",
    "unknown.toml": '[run]\nnane = "x"\n',
    "wrong.toml": '[run]\ntick = "soon"\n',
}
START = (
    "ingest files readings.csv --to thermometers.py:READINGS --time at",
    "run thermometers.py --until-caught-up",
)


def write_files(folder: Path) -> None:
    """All files of the folder."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
