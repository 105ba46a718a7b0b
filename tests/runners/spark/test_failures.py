"""What Spark reports becomes an error that says what to do."""

from pathlib import Path

import pytest

from millrace.errors import LogUnwritable, MillraceError, OffsetGone, RunFailed, StateUnwritable
from millrace.runners.spark.failures import explain, may_pass, rebuilt

STATE = Path("/some/state")

WORKER = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 failed
Traceback (most recent call last):
  File "worker.py", line 3, in main
millrace.errors.OffsetGone: input.a[0]: 0 to 7 are gone; start anew
\tat org.apache.spark.api.python.BasePythonRunner"""

USER = """An exception was raised by the Python Proxy
Traceback (most recent call last):
  File "job.py", line 3, in fn
ZeroDivisionError: division by zero
\tat py4j.Protocol"""


def test_an_error_of_ours_keeps_its_kind_and_words_on_the_way_through_spark() -> None:
    found = explain(Exception(WORKER), state=STATE)
    assert type(found) is OffsetGone
    assert str(found) == "input.a[0]: 0 to 7 are gone; start anew"


def test_an_exception_in_a_users_code_is_named() -> None:
    found = explain(Exception(USER), state=STATE)
    assert type(found) is RunFailed
    assert str(found) == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("said", ["No space left on device", "Read-only file system", "Permission denied"])
def test_a_checkpoint_that_cannot_be_written_names_the_folder_and_the_remedy(said: str) -> None:
    found = explain(Exception(f"java.io.IOException: {said}\n\tat java.io.File"), state=STATE)
    assert type(found) is StateUnwritable
    assert str(STATE) in str(found)
    assert "Nothing is lost" in str(found)


def test_only_what_may_pass_is_tried_again() -> None:
    assert may_pass(RunFailed("the worker did not connect back"))
    assert not may_pass(LogUnwritable("full"))
    assert not may_pass(OffsetGone("gone"))


def test_an_unknown_kind_from_another_process_is_a_failed_run() -> None:
    assert type(rebuilt("Nonsense", "x")) is RunFailed
    assert type(rebuilt("Path", "x")) is RunFailed
    assert isinstance(rebuilt("OffsetGone", "x"), MillraceError)


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.OutOfMemoryError: Java heap space\n\tat org.apache.spark",
        'File "stateful_processor_api_client.py", line 462, in _receive_proto_message\n    length = read_int(self.sockfile)\n  File "serializers.py", line 604, in read_int\n    raise EOFError\nEOFError\n',
    ],
)
def test_a_heap_that_is_too_small_is_named(text: str) -> None:
    found = explain(Exception(text), state=STATE)
    assert type(found) is RunFailed
    assert "spark.driver_memory" in str(found)
    assert str(STATE / "spark.log") in str(found)
