"""The command line, as a user meets it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from millrace.cli import main
from millrace.graph import find_jobs
from millrace.log import open_log
from millrace.log.codecs.codec import encode
from millrace.topics import Topic

MINUTE = 60_000
PROGRAM = """
from dataclasses import dataclass
from millrace import Job, Topic, read, watermarks, windows

@dataclass
class Word:
    word: str

@dataclass
class Count:
    word: str
    count: int

WORDS = Topic("words", Word, key="word", partitions=1)
COUNTS = Topic("counts", Count, key="word", partitions=1)
words = read(WORDS, watermark=watermarks.bounded("0s"))
counting = Job("counting", words.window(windows.fixed("1m")).group_by("word").count().write(COUNTS))
"""
POSITION = {
    "oper": 40,
    "veh": 456,
    "tst": "2020-09-21T03:00:00.000Z",
    "lat": 60.17,
    "long": 24.95,
    "spd": 3.0,
    "acc": 0.1,
    "hdg": 10,
    "dl": 0,
}


@pytest.fixture(autouse=True)
def folder(users_folder: Path) -> Iterator[Path]:
    """A folder with a program, a table of its events, a recording, and a log with the same events."""
    (users_folder / "counting_program.py").write_text(PROGRAM)
    (users_folder / "words.csv").write_text("word,event_time\na,1000\nb,2000\na,3000\nc,61000\n")
    (users_folder / "hsl.jsonl").write_text(
        json.dumps(
            {
                "received": 1600657200100,
                "topic": "/hfp/v2/journey/ongoing/vp/tram/0040/00456/",
                "payload": {"VP": POSITION},
            }
        )
        + "\n"
    )
    handler = signal.getsignal(signal.SIGTERM)
    yield users_folder
    signal.signal(signal.SIGTERM, handler)
    sys.modules.pop("counting_program", None)


@pytest.fixture
def log() -> None:
    """The words in the default log."""
    words = find_jobs.resolve("counting_program.py:WORDS")
    assert isinstance(words, Topic)
    opened = open_log("embedded:millrace-data/log")
    opened.ensure(words)
    opened.append(
        "words", encode(words, pl.read_csv("words.csv").with_columns(ingestion_time=pl.col("event_time")))
    )
    opened.close()


class Cli:
    """Runs commands in this process and remembers their output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = main.main(list(words))
        message = self._capsys.readouterr()
        return code, message.out, message.err

    def ok(self, *words: str) -> str:
        code, out, err = self(*words)
        assert code == 0, err
        return out

    def objects(self, *words: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.ok(*words).splitlines()]


@pytest.fixture
def millrace(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def test_help_lists_the_commands_and_every_command_has_an_example(millrace: Cli) -> None:
    commands = [
        "demo",
        "run",
        "ingest",
        "ingest mqtt",
        "ingest recording",
        "ingest files",
        "ingest stdin",
        "ingest simulator",
        "explain",
        "replay",
        "transcript",
        "doctor",
        "topics list",
        "topics describe",
        "topics tail",
        "topics count",
        "bench kafka",
        "kafka up",
        "kafka down",
        "kafka status",
        "topics lag",
        "bench engine",
    ]
    overview = millrace.ok("--help")
    for command in commands:
        assert command.split()[0] in overview
        assert f"millrace {command}" in millrace.ok(*command.split(), "--help").partition("Examples:")[2]


def test_the_version_is_printed(millrace: Cli) -> None:
    assert millrace.ok("--version") == "millrace 0.1.0\n"


def test_explain_shows_the_graph_and_the_stages(millrace: Cli) -> None:
    out = millrace.ok("explain", "counting_program.py:counting")
    assert "read words (Word)" in out
    assert "stage 1" in out


def test_replay_of_a_table_gives_panes_as_json(millrace: Cli) -> None:
    panes = millrace.objects("replay", "counting_program.py", "--events", "words.csv", "--json")
    assert sorted((pane["word"], pane["count"], pane["window_end"]) for pane in panes) == [
        ("a", 2, MINUTE),
        ("b", 1, MINUTE),
        ("c", 1, 2 * MINUTE),
    ]


@pytest.mark.parametrize(
    ("file", "read"), [("x.parquet", pl.read_parquet), ("x.csv", pl.read_csv), ("x.jsonl", pl.read_ndjson)]
)
def test_replay_writes_panes_to_a_file(millrace: Cli, file: str, read: object) -> None:
    assert (
        millrace.ok("replay", "counting_program.py", "--events", "words.csv", "--output", file)
        == f"3 panes in {file}\n"
    )
    assert callable(read)
    assert read(file).sort("word")["count"].to_list() == [2, 1, 1]


def test_replay_without_a_terminal_is_plain_lines(millrace: Cli) -> None:
    lines = millrace.ok("replay", "counting_program.py", "--events", "words.csv").splitlines()
    assert lines[0].split("\t")[:2] == ["word", "count"]
    assert sorted(line.split("\t")[:2] for line in lines[1:]) == [["a", "2"], ["b", "1"], ["c", "1"]]


@pytest.mark.usefixtures("log")
def test_replay_of_a_topic_equals_replay_of_its_events(millrace: Cli) -> None:
    from_topic = millrace.objects("replay", "counting_program.py", "--topic", "words", "--json")
    from_table = millrace.objects("replay", "counting_program.py", "--events", "words.csv", "--json")
    assert sorted(from_topic, key=str) == sorted(from_table, key=str)


def test_replay_takes_a_file_as_an_argument_too(millrace: Cli) -> None:
    from_option = millrace.objects("replay", "counting_program.py", "--events", "words.csv", "--json")
    from_file = millrace.objects("replay", "counting_program.py", "words.csv", "--json")
    assert sorted(from_file, key=str) == sorted(from_option, key=str)  # keys of one window come in any order
    from_option = millrace.objects("replay", "vehicle-distribution", "--recording", "hsl.jsonl", "--json")
    assert millrace.objects("replay", "vehicle-distribution", "hsl.jsonl", "--json") == from_option


def test_replay_of_a_recording_needs_no_log(millrace: Cli, folder: Path) -> None:
    panes = millrace.objects("replay", "vehicle-distribution", "--recording", "hsl.jsonl", "--json")
    assert [pane["count"] for pane in panes] == [1] * 6
    assert not (folder / "millrace-data").exists()


def test_replay_says_which_records_of_a_recording_became_no_event(millrace: Cli, folder: Path) -> None:
    line = json.loads((folder / "hsl.jsonl").read_text())
    lines = [{**line, "payload": {"VP": {**POSITION, "lat": None}}}] * 2 + [
        line,
        {**line, "payload": {"XX": {}}},
    ]
    (folder / "hsl.jsonl").write_text("\n".join([*map(json.dumps, lines), "nonsense"]))
    code, out, err = millrace("replay", "vehicle-distribution", "hsl.jsonl", "--json")
    assert (code, len(out.splitlines())) == (0, 6)
    assert err.startswith("hsl.jsonl: 4 of 5 records became no event: no position 2, ")
    assert err.endswith("; for example no position: lat=None, long=24.95 (hsl.jsonl:1)\n")
    assert "0 records" not in err


@pytest.mark.usefixtures("log")
def test_run_writes_results_once_however_often_it_is_started(millrace: Cli) -> None:
    for _ in range(2):
        code, _, err = millrace("run", "counting_program.py:counting", "--until-caught-up")
        assert code == 0, err
    shown = millrace.objects(
        "topics",
        "tail",
        "counts",
        "--from-start",
        "--no-wait",
        "--json",
        "--topic",
        "counting_program.py:COUNTS",
    )
    assert sorted((row["word"], row["count"]) for row in shown) == [("a", 2), ("b", 1)]


BROKEN = """
import polars as pl

def broken(frame):
    if (frame["word"] == "b").any():
        raise LookupError("no such word")
    return frame

rows = read(WORDS, watermark=watermarks.bounded("0s")).map_batches(broken)
OTHERS = Topic("others", Count, key="word")
stopped = Job("stopped", rows.window(windows.fixed("1m")).group_by("word").count().write(OTHERS))
"""


@pytest.mark.usefixtures("log")
def test_a_job_that_its_own_code_stops_is_named_with_the_remedy_and_the_exit_code_says_so(
    millrace: Cli, folder: Path
) -> None:
    both = ["run", "two_jobs.py:counting", "two_jobs.py:stopped", "--until-caught-up"]
    (folder / "two_jobs.py").write_text(PROGRAM + BROKEN)
    for _ in range(2):
        code, _, err = millrace(*both)
        assert code == 1
        assert (
            "error: job stopped was stopped by its own code in batch 0: LookupError: no such word "
            "(two_jobs.py:23 in broken; in map_batches(broken)"
        ) in err
        assert "run again with --retry stopped" in err
        assert "Traceback" not in err
    shown = millrace.objects(
        "topics",
        "tail",
        "counts",
        "--from-start",
        "--no-wait",
        "--json",
        "--topic",
        "counting_program.py:COUNTS",
    )
    assert sorted((row["word"], row["count"]) for row in shown) == [("a", 2), ("b", 1)]
    code, _, err = millrace(*both, "--retry", "stopped")
    assert code == 0, err


def test_ingest_then_look_at_the_topics(millrace: Cli) -> None:
    code, _, err = millrace("ingest", "recording", "hsl.jsonl", "--speed", "max")
    assert (code, "1 messages: 1 written" in err) == (0, True)
    topics = {row["topic"]: row for row in millrace.objects("topics", "list", "--json")}
    assert topics["input.vehicle-positions"]["records"] == 1
    [about] = millrace.objects("topics", "describe", "input.vehicle-positions", "--json")
    assert (about["type"], about["partitioner"]) == ("millrace.transit.VehiclePosition", "murmur2")
    [event] = millrace.objects(
        "topics", "tail", "input.vehicle-positions", "--from-start", "--max", "1", "--json"
    )
    assert (event["vehicle_id"], event["event_time"]) == ("40/456", 1600657200000)
    assert "vehicle_id=40/456" in millrace.ok(
        "topics", "tail", "input.vehicle-positions", "--from-start", "--max", "1"
    )
    assert "codec      binary" in millrace.ok("topics", "describe", "input.vehicle-positions")


def test_ingest_takes_its_sources_from_the_settings(millrace: Cli, folder: Path) -> None:
    (folder / "millrace.toml").write_text(
        '[ingest.tram]\nconnector = "recording"\nprocessor = "hsl"\npath = "hsl.jsonl"\nspeed = 0'
    )
    code, _, err = millrace("ingest")
    assert (code, "tram: done: 1 messages: 1 written" in err) == (0, True)


@pytest.mark.parametrize("before", [True, False])
def test_ingest_takes_the_log_before_or_after_the_source(millrace: Cli, before: bool) -> None:
    log, recording = ["--log", "embedded:elsewhere"], ["recording", "hsl.jsonl", "--speed", "max"]
    millrace.ok("ingest", *(log + recording if before else recording + log))
    [topic] = [row for row in millrace.objects("topics", "list", *log, "--json") if row["records"]]
    assert topic["topic"] == "input.vehicle-positions"


@pytest.mark.parametrize("source", ["files", "stdin"])
def test_ingest_reads_lines_into_a_declared_topic(
    millrace: Cli, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["words.csv"] if source == "files" else ["--format", "csv"]
    with Path("words.csv").open() as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        millrace.ok("ingest", source, *words, "--to", "counting_program.py:WORDS", "--time", "event_time")
    [topic] = millrace.objects("topics", "list", "--json")
    assert (topic["topic"], topic["records"]) == ("words", 4)


def test_ingest_simulates_a_city(millrace: Cli) -> None:
    words = "--scale", "0.1", "--seed", "7", "--volume", "mean", "--speed", "max", "--duration", "10s"
    code, _, err = millrace("ingest", "simulator", *words)
    assert (code, "simulator: done:" in err) == (0, True)
    topics = {topic["topic"]: topic for topic in millrace.objects("topics", "list", "--json")}
    records = topics["input.vehicle-positions"]["records"]
    assert isinstance(records, int)
    assert 500 < records < 800


def test_doctor_says_what_to_do_and_fails_where_something_needed_is_missing(
    millrace: Cli, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(folder))
    code, out, _ = millrace("doctor")
    assert (code, "missing Java" in out, "→ install a Java 17 or newer" in out) == (1, True, True)
    java = next(
        found for found in millrace.objects("doctor", "--on", "local", "--json") if found["name"] == "Java"
    )
    assert java["verdict"] == "absent"


def test_run_on_spark_without_java_says_what_to_do(
    millrace: Cli, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(folder))
    code, _, err = millrace("run", "counting_program.py:counting", "--on", "spark")
    assert (code, "install a Java 17 or newer" in err, "Traceback" in err) == (1, True, False)


def test_transcripts_pass_and_fail_by_exit_code(millrace: Cli) -> None:
    transcripts = Path(__file__).parents[1] / "transcripts"
    assert "0 failed" in millrace.ok("transcript", str(transcripts / "fixed-windows.yaml"), "--on", "model")
    code, out, _ = millrace("transcript", "absent.yaml")
    assert (code, "FAIL absent.yaml" in out) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "nowhere:job"], 1, "error: 'nowhere:job': there is no module 'nowhere'"),
        (["run"], 2, "name at least one job, or set run.jobs"),
        (["run", "x:y", "--on", "flink"], 2, "Invalid value for '--on'"),
        (
            ["run", "vehicle-distribution", "--tick", "soon"],
            1,
            "error: option run_tick: run.tick = 'soon' is not allowed",
        ),
        (
            ["run", "vehicle-distribution", "--log", "kafka://broker"],
            1,
            "error: log 'kafka://broker': 'broker' is not HOST:PORT",
        ),
        (["explain", "vehicle-distribucion"], 1, "did you mean vehicle-distribution?"),
        (["topics", "list"], 1, "error: there is no log in"),
        (["replay", "counting_program.py"], 2, "by exactly one of --recording, --topic and --events"),
        (
            ["replay", "counting_program.py", "--events", "absent.csv"],
            1,
            "error: absent.csv cannot be read (No such file or directory",
        ),
        (
            ["replay", "counting_program.py", "--events", "words.csv", "-o", "x.xls"],
            1,
            "error: x.xls: the ending '.xls' is not a format",
        ),
        (
            ["replay", "counting_program.py", "--topic", "nouns"],
            2,
            "counting does not read 'nouns'; it reads words",
        ),
        (["ingest"], 1, "error: there is nothing to ingest: add a section [ingest.NAME]"),
        (["ingest", "recording", "absent.jsonl"], 1, "error: the recording absent.jsonl cannot be read"),
        (["ingest", "recording", "hsl.jsonl", "--processor", "bus"], 1, "there is no processor 'bus'"),
        (["ingest", "--recording", "hsl.jsonl"], 2, "No such option: --recording"),
        (["ingest", "recording", "hsl.jsonl", "--scale", "4"], 2, "No such option: --scale"),
        (["ingest", "files", "words.csv"], 2, "Missing option '--to'"),
        (
            ["ingest", "simulator", "--scale", "0"],
            1,
            "error: [ingest.simulator]: scale=0.0 is not allowed; use a number from",
        ),
        (["ingest", "simulator", "--duration", "soon"], 1, "duration='soon' is not a duration"),
        (["doctor", "--config", "absent.toml"], 1, "error: absent.toml: the settings file cannot be read"),
        (["frobnicate"], 2, "No such command 'frobnicate'"),
    ],
)
def test_a_mistake_is_one_clear_message_and_an_exit_code(
    millrace: Cli, words: list[str], code: int, message: str
) -> None:
    found, _, err = millrace(*words)
    assert (found, "Traceback" in err) == (code, False)
    assert message in " ".join(err.split())


@pytest.mark.usefixtures("log")
def test_a_topic_of_an_unknown_type_asks_where_it_is_defined(millrace: Cli) -> None:
    code, _, err = millrace("topics", "tail", "words", "--from-start")
    assert (code, "--topic module:attribute" in err) == (1, True)


def test_debug_shows_where_an_error_comes_from() -> None:
    with pytest.raises(Exception, match="there is no log in"):
        main.main(["topics", "list", "--debug"])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("log")
def test_an_interrupted_run_stops_with_130_and_without_a_traceback(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "millrace.cli.main", "run", "counting_program.py:counting"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if "running counting" in line:
                break
        run.send_signal(number)
        err = run.stderr.read()
    assert (run.returncode, "Traceback" in err, "stopped" in err) == (130, False, True)


@pytest.mark.slow
def test_output_that_nobody_reads_ends_quietly() -> None:
    replay = f"{sys.executable} -m millrace.cli.main replay counting_program.py --events words.csv"
    script = f"{replay} --json | head -n 1"
    run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**os.environ})
    assert (json.loads(run.stdout)["window_end"], run.stderr) == (MINUTE, "")
