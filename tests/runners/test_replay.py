"""Replay takes times by their type, refuses topics that are not read, and says how much was late."""

import json
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

import millrace as mr
from millrace import testing, watermarks, windows
from millrace.errors import DefinitionError, InputError
from millrace.log import open_log
from millrace.runners.replay import replay_all
from millrace.stream import Job


@dataclass
class Word:
    word: str
    size: int = 0


@dataclass
class Counted:
    word: str
    n: int


WORDS = mr.Topic("words", Word, key="word")
COUNTS = mr.Topic("counts", Counted, key="word")


def counting(delay: str = "1s") -> Job:
    words = mr.read(WORDS, watermark=watermarks.bounded(delay))
    return Job("counting", words.window(windows.fixed("10s")).group_by("word").count(name="n").write(COUNTS))


def words(*times: object, dtype: pl.DataType | None = None) -> pl.DataFrame:
    return pl.DataFrame(
        {"word": ["a"] * len(times), "size": [1] * len(times), "event_time": pl.Series(times, dtype=dtype)}
    )


MILLIS = 1_709_294_400_250
START = datetime(2024, 3, 1, 12)  # noqa: DTZ001 - a frame without a zone


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_datetimes_count_in_their_own_unit(unit: str) -> None:
    frame = words(START, START + timedelta(seconds=10), dtype=pl.Datetime(unit))  # type: ignore[arg-type]
    panes = mr.replay(counting(), frame)
    assert panes["window_start"].to_list() == [1_709_294_400_000, 1_709_294_410_000]


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_datetimes_in_files_count_in_their_own_unit(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"words.{ending}"
    frame = words(START, dtype=pl.Datetime("us"))
    if ending == "parquet":
        frame.write_parquet(path)
    else:
        text = frame.with_columns(pl.col("event_time").dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"))
        text.write_csv(path) if ending == "csv" else text.write_ndjson(path)
    assert mr.replay(counting(), path)["window_start"].to_list() == [1_709_294_400_000]


def test_fractions_are_refused_instead_of_cut() -> None:
    with pytest.raises(InputError, match=r"column 'event_time': '1\.5' in row 0"):
        mr.replay(counting(), words(1.5))
    with pytest.raises(InputError, match=r"column 'size': '3\.7' in row 0"):
        mr.replay(counting(), words(1).with_columns(size=pl.lit(3.7)))


@dataclass
class Reading:
    sensor: str
    level: float | None
    count: int
    open: bool | None
    at: datetime | None


READINGS = mr.Topic("readings", Reading, key="sensor")
LEVELS = mr.Topic("levels", Reading, key="sensor")
HEAD = "sensor,level,count,open,at,event_time\n"


def read_table(path: Path, text: str) -> list[tuple[object, ...]]:
    path.write_text(text)
    rows = mr.replay(Job("levels", mr.read(READINGS).write(LEVELS)), path)
    return rows.select("sensor", "level", "count", "open", pl.col("at").dt.epoch("ms"), "event_time").rows()


def test_a_column_of_csv_is_read_by_the_type_of_the_topic_and_not_guessed(tmp_path: Path) -> None:
    text = (
        HEAD
        + "007,1,2,yes,2024-03-01T12:00:00Z,1000\n1e5,,3,,,2024-03-01T12:00:00.250Z\n,0.5,4,false,,1500\n"
    )
    assert read_table(tmp_path / "r.csv", text) == [
        ("007", 1.0, 2, True, 1_709_294_400_000, 1_000),
        ("1e5", None, 3, None, None, MILLIS),
        ("", 0.5, 4, False, None, 1_500),
    ]


def test_the_first_rows_of_a_table_do_not_decide_what_the_others_may_be(tmp_path: Path) -> None:
    csv = HEAD + "7,1,2,,,1000\n" * 200 + "b,0.5,2,,,1000\n"
    assert read_table(tmp_path / "r.csv", csv)[-1] == ("b", 0.5, 2, None, None, 1_000)
    row = {"sensor": "a", "level": None, "count": 2, "open": None, "at": None, "event_time": 1_000}
    lines = [json.dumps(row)] * 200 + [json.dumps({**row, "level": 0.5})]
    assert read_table(tmp_path / "r.jsonl", "\n".join(lines))[-1] == ("a", 0.5, 2, None, None, 1_000)


@pytest.mark.parametrize(("line", "column"), [
    ("a,1,3.7,,,1000", "count"), ("a,1,,,,1000", "count"), ("a,x,2,,,1000", "level"),
    ("a,1,2,maybe,,1000", "open"),
    ("a,1,2,,noon,1000", "at"), ("a,1,2,,,2024-03-01", "event_time"), ("a,1,2,,,", "event_time"),
])  # fmt: skip
def test_a_value_of_csv_that_does_not_fit_is_refused_by_its_column(
    tmp_path: Path, line: str, column: str
) -> None:
    with pytest.raises(InputError, match=column):
        read_table(tmp_path / "r.csv", f"{HEAD}a,1,2,true,,1000\n{line}\n")


def test_a_null_in_a_required_column_of_a_frame_is_refused_as_a_log_would() -> None:
    frame = words(1, 2).with_columns(word=pl.Series(["a", None]))
    with pytest.raises(InputError, match=r"column 'word' is null in row 1, and the field must have a value"):
        mr.replay(counting(), frame)


def test_a_script_takes_datetimes_and_refuses_fractions() -> None:
    script = testing.Script(counting())
    script.events({"word": "a", "size": 1, "event_time": START})
    script.end()
    assert [pane["window_start"] for pane in script.panes()] == [1_709_294_400_000]
    with pytest.raises(DefinitionError, match=r"event_time=1\.5 is not a time"):
        script.events({"word": "a", "size": 1, "event_time": 1.5})
    with pytest.raises(DefinitionError, match=r"column 'size': 3\.7 is not a whole number"):
        script.events({"word": "a", "size": 3.7, "event_time": 1})


def test_a_topic_that_the_job_does_not_read_is_refused(tmp_path: Path) -> None:
    log = open_log(f"embedded:{tmp_path / 'log'}")
    log.ensure(WORDS)
    log.close()
    with pytest.raises(DefinitionError, match=r"does not read 'no\.such\.topic'.*it reads words"):
        mr.replay(counting(), "no.such.topic", log=f"embedded:{tmp_path / 'log'}")


def test_a_replay_that_refuses_most_rows_says_which_delay_would_have_taken_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = [n * 1_000 if n % 2 else n * 1_000 - 60_000 for n in range(200, 400)]
    with caplog.at_level(logging.WARNING, "millrace"):
        done = replay_all(counting(), words(*times))
    assert done.late_share.late == len(done.late) > 50
    [record] = caplog.records
    assert record.getMessage().startswith(f"job 'counting': {done.late_share.late} of 200 rows (")
    assert record.getMessage().endswith("watermarks.bounded('59s') would have taken 99% of them")
    caplog.clear()
    assert replay_all(counting("59s"), words(*times)).late_share.late == 0
    assert not caplog.records


def test_a_batch_that_is_not_positive_is_refused() -> None:
    with pytest.raises(DefinitionError, match="batch=-1"):
        mr.replay(counting(), words(1), batch=-1)


def test_records_of_a_recording_that_became_no_event_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from millrace.ingest.connectors.recording_frames import read_frames, read_recording

    good = {"VP": {"oper": 1, "veh": 2, "tst": "2024-03-01T12:00:00Z", "lat": 60.1, "long": 24.9}}
    payloads = [good, {"VP": {**good["VP"], "lat": None}}, {"XX": {}}, good]
    topic = "/hfp/v2/journey/ongoing/vp/bus/0001/00002/1/1/x/12:00/1/5/60;24/11/22/33"
    lines = [json.dumps({"received": 5, "topic": topic, "payload": payload}) for payload in payloads]
    (tmp_path / "r.jsonl").write_text("\n".join([*lines, "nonsense"]))
    found = read_recording(tmp_path / "r.jsonl", processor="hsl")
    assert found.received == 5
    assert found.rejected == {"no position": 1, "unknown event type": 1, "malformed line": 1}
    assert sum(len(frame) for frame in found.frames.values()) == 2
    with caplog.at_level(logging.WARNING, "millrace"):
        frames = read_frames(tmp_path / "r.jsonl", processor="hsl")
    assert frames.keys() == found.frames.keys()
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"{tmp_path / 'r.jsonl'}: 3 of 5 records became no event: ")
    (tmp_path / "r.jsonl").write_text("\n".join([lines[0], lines[0]]))
    assert read_recording(tmp_path / "r.jsonl", processor="hsl").describe_skipped() is None


def test_a_null_that_a_processor_left_in_a_required_column_costs_one_message_of_a_recording() -> None:
    from millrace.ingest.contract import Event, MessageBatch, ProcessedBatch, RawMessage
    from millrace.ingest.contract import MessageProcessor as Understands
    from millrace.ingest.isolation import process_isolated

    class Columns(Understands):
        topics = (WORDS,)

        def process(self, raw: RawMessage) -> Event | None:
            raise NotImplementedError

        def process_many(self, batch: MessageBatch) -> ProcessedBatch:
            texts = [payload.decode() or None for payload in batch.payloads]
            rows = pl.DataFrame(
                {"word": texts, "size": 1, "event_time": 5, "ingestion_time": 6},
                schema_overrides={"word": pl.String},
            )
            return ProcessedBatch([(WORDS, rows)])

    done = process_isolated(
        Columns(), MessageBatch(["", "", ""], [b"a", b"", b"c"], [5, 5, 5], range(1, 4), "s")
    )
    assert [word for _, rows in done.rows for word in rows["word"]] == ["a", "c"]
    assert [(reject.reason, reject.raw.origin) for reject in done.rejects] == [("processor failed", "s:2")]
    assert "column 'word'" in done.rejects[0].detail
