"""How jobs are named."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import millrace as mr
from millrace.cli.main import main
from millrace.errors import DefinitionError, MillraceError
from millrace.graph import find_jobs


@dataclass
class Phrase:
    word: str


PROGRAM = """
from dataclasses import dataclass
from millrace import Job, Topic, read, windows

@dataclass
class Word:
    word: str

@dataclass
class Count:
    word: str
    count: int

def counting(name="counting"):
    counts = read(Topic("words", Word)).window(windows.fixed("1m")).group_by("word").count()
    return Job(name, counts.write(Topic("counts", Count)))

one = counting("one")
two = counting("two")
both = [one, two]
number = 3

from millrace.views import View

@dataclass
class Placed:
    geocell: int
    count: int

PLACED = Topic("placed", Placed)
VIEW = View("counts", PLACED, "Words", window="1m", every="1m", key="geocell", values=("count",))
VIEWS = (VIEW, VIEW)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "wordcount_program.py"
    path.write_text(PROGRAM)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    yield path
    sys.modules.pop("wordcount_program", None)


@pytest.mark.parametrize(
    ("attribute", "names"),
    [(":one", ["one"]), (":both", ["one", "two"]), (":counting", ["counting"]), ("", ["one", "two"])],
)
def test_a_file_gives_a_job_a_list_what_a_function_makes_or_all(
    program: Path, attribute: str, names: list[str]
) -> None:
    assert [job.name for job in find_jobs.load_jobs(f"{program}{attribute}")] == names


def test_a_module_of_this_folder_is_found(program: Path) -> None:
    assert [job.name for job in find_jobs.load_jobs("wordcount_program:two")] == ["two"]


def test_a_job_named_twice_is_taken_once(program: Path) -> None:
    assert [
        job.name
        for job in find_jobs.load_all_jobs([f"{program}:one", "wordcount_program:both", f"{program}:one"])
    ] == ["one", "two"]


def test_a_built_in_job_needs_no_module() -> None:
    assert [job.name for job in find_jobs.load_jobs("vehicle-distribution")] == ["vehicle-distribution"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("vehicle-distribucion", r"did you mean vehicle-distribution\?.*module:attribute"),
        ("nowhere.at.all:job", r"no module 'nowhere'"),
        ("absent.py:job", r"there is no file .*absent\.py"),
        ("wordcount_program.py:three", r"has no 'three'; its jobs are one, two"),
        ("wordcount_program.py:number", r"is 3, not a millrace\.Job"),
    ],
)
def test_what_is_not_found_is_said_with_what_there_is(program: Path, spec: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        find_jobs.load_jobs(spec)


def test_a_program_that_fails_is_named_with_its_error(program: Path) -> None:
    program.write_text("1 / 0")
    with pytest.raises(
        DefinitionError, match="wordcount_program fails when loaded: ZeroDivisionError: division by zero"
    ):
        find_jobs.load_jobs(f"{program}:one")


def test_a_missing_module_inside_a_program_is_named(program: Path) -> None:
    program.write_text("import surely_not_installed")
    with pytest.raises(MillraceError, match="needs the module 'surely_not_installed'"):
        find_jobs.load_jobs(f"{program}:one")


def test_a_file_that_would_hide_a_module_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(PROGRAM)
    with pytest.raises(DefinitionError, match="would hide the module 'json'"):
        find_jobs.load_jobs(f"{tmp_path / 'json.py'}:one")


def test_views_are_named_like_jobs(program: Path) -> None:
    (view,) = find_jobs.load_views([f"{program}:VIEW", f"{program}:VIEWS"])
    assert (view.name, view.window_ms) == ("counts", 60_000)
    assert [view.name for view in find_jobs.load_views(["millrace.transit.views:VIEWS"])][:2] == [
        "vehicle-distribution",
        "delay-distribution",
    ]


def test_what_is_no_view_is_refused(program: Path) -> None:
    for place in ("number", "one", "both"):
        with pytest.raises(DefinitionError, match=r"not a millrace\.views\.View"):
            find_jobs.load_views([f"{program}:{place}"])


def test_parameters_go_to_the_function_that_makes_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {
        "vehicle-distribution": {
            "window": "1m",
            "every": "10s",
            "watermark": "percentile(0.9)",
            "early": "2s",
            "resolution": 7,
        }
    }
    (job,) = find_jobs.load_jobs("vehicle-distribution", parameters)
    text = str(job)
    assert "sliding('1m', every='10s')" in text
    assert "percentile(0.9" in text
    assert "every('2s')" in text


@pytest.mark.parametrize(("parameters", "message"), [
    ({"widow": "1m"}, (
        "[jobs.vehicle-distribution]: there is no parameter 'widow'; did you mean window? "
        "it takes resolution, window, every"
    )),
    ({"watermark": "soon"}, "watermark='soon' is not a delay; write '1s', or 'percentile(0.99)'"),
    ({"resolution": 16}, "resolution=16 is not an H3 resolution"),
])  # fmt: skip
def test_a_parameter_that_cannot_be_is_refused_with_the_remedy(
    parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        find_jobs.load_jobs("vehicle-distribution", {"vehicle-distribution": parameters})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("line", "message"), [("sys.exit()", "SystemExit"), ("sys.exit(0)", "SystemExit: 0")]
)
def test_a_program_that_ends_while_it_is_loaded_has_not_done_its_work(
    tmp_path: Path, line: str, message: str
) -> None:
    file = tmp_path / f"ends_{len(line)}.py"
    file.write_text(f"import sys\n{line}\n")
    with pytest.raises(DefinitionError, match=f"fails when loaded: {message}"):
        find_jobs.load_all_jobs([f"{file}:job"])
    assert main(["run", f"{file}:job", "--on", "local", "--until-caught-up"]) == 1


def test_a_function_that_ends_the_process_gives_no_job(tmp_path: Path) -> None:
    file = tmp_path / "makes_none.py"
    file.write_text("import sys\n\ndef job():\n    sys.exit(0)\n")
    with pytest.raises(DefinitionError, match=r"ends the process instead of giving a job \(SystemExit: 0\)"):
        find_jobs.load_jobs(f"{file}:job")


def test_a_step_that_ends_the_process_is_refused_at_definition() -> None:
    def leave(frame: pl.DataFrame) -> pl.DataFrame:
        sys.exit(0)

    with pytest.raises(DefinitionError, match="SystemExit: 0"):
        mr.read(mr.Topic("input.words", Phrase)).map_batches(leave)
