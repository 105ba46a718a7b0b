"""Our own transcripts run on the model and on the engine,
and the runner says plainly what is wrong with a transcript.
"""

from pathlib import Path
from typing import Literal

import pytest
import yaml

from millrace.testing.transcripts import run_files
from millrace.testing.transcripts.running import find_failure, run_documents

FILES = sorted(
    path
    for path in (Path(__file__).parents[1] / "transcripts").rglob("*.yaml")
    if not path.stem.startswith("woven-")
)
"""Those written by hand; the others are in test_woven.py."""


@pytest.mark.parametrize("on", ["model", "engine"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_our_transcripts_hold(path: Path, on: Literal["model", "engine"]) -> None:
    failed = {name: why for name, why in run_documents(path, on) if why is not None}
    assert not failed


def test_there_are_transcripts_to_run() -> None:
    assert sum(len(list(yaml.safe_load_all(path.read_text()))) for path in FILES) >= 30


def errors_of(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "some.yaml"
    path.write_text(text)
    lines: list[str] = []
    run_files([path], "model", say=lines.append)
    return lines


def test_each_transcript_has_a_line_and_the_last_line_counts(tmp_path: Path) -> None:
    good = "name: good\nwindow: {fixed: 10}\nsteps: [{events: [1]}]"
    bad = "name: bad\nwindow: {fixed: 10}\nsteps: [{expect: [{window: [0, 10]}]}]"
    assert errors_of(f"{good}\n---\n{bad}\n", tmp_path) == [
        "ok good",
        'FAIL bad: step 1: missing panes {"window": [0, 10]}',
        "1 passed, 1 failed",
    ]


def test_unreadable_yaml_fails_under_the_name_of_its_file(tmp_path: Path) -> None:
    first, last = errors_of("name: [", tmp_path)
    assert first.startswith("FAIL some.yaml: cannot be read")
    assert last == "0 passed, 1 failed"


def test_a_missing_file_fails_and_the_others_still_run(tmp_path: Path) -> None:
    lines: list[str] = []
    assert run_files([tmp_path / "none.yaml", FILES[0]], "model", say=lines.append) == 1
    assert lines[0].startswith("FAIL none.yaml: cannot be read")
    assert len(lines) > 2


def test_an_empty_file_holds_no_transcript(tmp_path: Path) -> None:
    assert errors_of("", tmp_path)[0] == "FAIL some.yaml: holds no transcript"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{window: {fixed: 10}, steps: [], windw: 1}", "windw"),
        ("{window: {fixed: 10, siz: 1}, steps: []}", "siz"),
        ("{window: {sliding: {size: 10, step: 5}}, steps: []}", "size and every"),
        ("{window: {fixed: 10}, steps: [{event: [1]}]}", "event"),
        ("{window: {fixed: 10}, steps: [{events: [{t: 1, val: 2}]}]}", "val"),
        ("{window: {fixed: 10}, steps: [{events: [{value: 2}]}]}", "not an event"),
        ("{window: {fixed: 10}, steps: [{events: 1}]}", "is a list"),
        ("{window: {fixed: 10}, steps: [{expect: [{windows: [0, 1]}]}]}", "windows"),
        ("{window: {fixed: 10}, steps: [{expect: [{timing: soon}]}]}", "soon"),
        ("{window: {fixed: 10}, value: total, steps: []}", "use list or sum or count or latest"),
        ("{window: {fixed: 10}, value: {total: value}, steps: []}", "names none of list, sum"),
        ("{window: {fixed: 10}, value: {sum: value, by: key}, steps: []}", "unknown key `by`"),
        ("{window: {fixed: 10}, value: {sum: value +}, steps: []}", "is not an expression"),
        ("{window: {fixed: 10}, value: {sum: 3}, steps: []}", "is not an expression"),
        ("{window: {fixed: 10}, value: {top: 0}, steps: []}", "less than 1"),
        (
            "{window: {fixed: 10}, value: {latest: value, distinct: true}, steps: []}",
            "has no meaning for `latest`",
        ),
        ("{window: {fixed: 10}, then: [{by: all, value: most}], steps: []}", "in `then` is unknown"),
        ("{window: {fixed: 10}, steps: [{expect: [{values: 1}]}]}", "is not a list"),
        ("{window: {fixed: 10}, steps: [{watermark: soon}]}", "soon"),
        ("{window: {fixed: 10}, steps: [{restart: 1}]}", "restart: true"),
        ("{window: {fixed: 10}, steps: {events: [1]}}", "list of steps"),
        ("{window: {fixed: 10}}", "steps"),
        ("{steps: []}", "window"),
        ("{window: {fixed: 0}, steps: []}", "fixed: 0"),
        ("{window: {fixed: ten}, steps: []}", "ten"),
        ("{window: {fixed: 10}, lateness: -1, steps: []}", "lateness: -1"),
        ("{window: {fixed: 10}, lateness: 1.5, steps: []}", "lateness: 1.5"),
        ("{window: {fixed: 10}, output: values, steps: []}", "output: values"),
        ("{window: {fixed: 10}, trigger: sometimes, steps: []}", "sometimes"),
        ("{window: {fixed: 10}, must_fail: yes, steps: []}", "must_fail"),
        ("{window: {fixed: 10}, value: sum, steps: [{events: [{t: 1, value: x}]}]}", "needs numbers"),
        ("{window: {sliding: {size: 5, every: 10}}, steps: []}", "every"),
        ("{over: {rows: 2}, steps: []}", "names no columns"),
        ("{over: {columns: {a: median}}, steps: []}", "median"),
        ("{over: {columns: {a: lag}, rows: [1]}, steps: []}", "has two bounds"),
        ("{over: {columns: {a: lag}}, window: {fixed: 10}, steps: []}", "no meaning beside `over`"),
        ("{process: 1, steps: []}", "process: 1"),
        ("{process: {}, window: {fixed: 10}, steps: []}", "`window` has no meaning beside `process`"),
        ("{process: {on_timer: {ring: [{ring: 1}]}}, steps: []}", "ring"),
        ("{process: {}, steps: [{events: [{t: 1, value: {timers: {a: 1}}}]}]}", "timers"),
        ("{process: {}, steps: [{events: [{t: 1, value: {timer: 5}}]}]}", "timer: 5"),
        ("{process: {}, steps: [{events: [{t: 1, side: right, value: {emit: 5}}]}]}", "a broadcast row"),
        ("{process: {}, steps: [{events: [{t: 1, value: {forget: all}}]}]}", "forget: all"),
        ("{window: {fixed: 10}, deduplicate: true, steps: []}", "within: N"),
        ("[1, 2]", "a map"),
        ("7", "a map"),
    ],
)
def test_what_is_wrong_is_named(text: str, named: str) -> None:
    why = find_failure(yaml.safe_load(text), "model")
    assert why is not None
    assert named in why


def test_a_transcript_that_must_fail_and_does_not_is_a_failure() -> None:
    document = {
        "window": {"fixed": 10},
        "must_fail": "missing",
        "steps": [{"events": [1]}, {"watermark": 10}, {"expect": [{"values": [1]}]}],
    }
    assert (
        find_failure(document, "model")
        == "must fail because something is missing, but everything was as expected"
    )


def test_failing_for_another_reason_is_not_enough() -> None:
    document = {
        "window": {"fixed": 10},
        "must_fail": "missing",
        "steps": [{"events": [1]}, {"watermark": 10}],
    }
    assert "but found only: at the end: unexpected panes" in str(find_failure(document, "model"))


def test_vague_expectations_are_paired_so_that_all_fit() -> None:
    steps = [{"events": [1, 11]}, {"watermark": 20}, {"expect": [{"timing": "on_time"}, {"window": [0, 10]}]}]
    assert find_failure({"window": {"fixed": 10}, "steps": steps}, "model") is None
