"""What Spark reports becomes an error that says what to do."""

import re
from pathlib import Path

import pytest

from millrace.errors import (
    ComponentMissing,
    ConfigError,
    LogDenied,
    LogUnwritable,
    MillraceError,
    OffsetGone,
    RunFailed,
    StateUnwritable,
)
from millrace.runners.spark.supervisor.failures import explain_failure, is_retryable, rebuild_error

STATE = Path("/some/state")

WORKER = """[STREAM_FAILED] Query [id = 1] terminated with exception: \
Job aborted due to stage failure: Task 0 failed
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
    found = explain_failure(Exception(WORKER), state=STATE)
    assert type(found) is OffsetGone
    assert str(found) == "input.a[0]: 0 to 7 are gone; start anew"


def test_an_exception_in_a_users_code_is_named() -> None:
    found = explain_failure(Exception(USER), state=STATE)
    assert type(found) is RunFailed
    assert str(found) == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("message", ["No space left on device", "Read-only file system", "Permission denied"])
def test_a_checkpoint_that_cannot_be_written_names_the_folder_and_the_remedy(message: str) -> None:
    found = explain_failure(Exception(f"java.io.IOException: {message}\n\tat java.io.File"), state=STATE)
    assert type(found) is StateUnwritable
    assert str(STATE) in str(found)
    assert "Nothing is lost" in str(found)


def test_only_what_may_pass_is_tried_again() -> None:
    assert is_retryable(RunFailed("the worker did not connect back"))
    assert not is_retryable(LogUnwritable("full"))
    assert not is_retryable(OffsetGone("gone"))


def test_an_unknown_kind_from_another_process_is_a_failed_run() -> None:
    assert type(rebuild_error("Nonsense", "x")) is RunFailed
    assert type(rebuild_error("Path", "x")) is RunFailed
    assert isinstance(rebuild_error("OffsetGone", "x"), MillraceError)


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.OutOfMemoryError: Java heap space\n\tat org.apache.spark",
        (
            'File "stateful_processor_api_client.py", line 462, in _receive_proto_message\n    length = '
            'read_int(self.sockfile)\n  File "serializers.py", line 604, in read_int\n    raise '
            "EOFError\nEOFError\n"
        ),
    ],
)
def test_a_heap_that_is_too_small_is_named(text: str) -> None:
    found = explain_failure(Exception(text), state=STATE)
    assert type(found) is RunFailed
    assert "spark.driver_memory" in str(found)
    assert str(STATE / "spark.log") in str(found)


MISSING = WORKER.replace(
    "millrace.errors.OffsetGone: input.a[0]: 0 to 7 are gone; start anew",
    "ModuleNotFoundError: No module named 'h3'",
)
GATEWAY = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."


def test_a_module_that_executors_lack_is_named_and_not_tried_again() -> None:
    found = explain_failure(Exception(MISSING), state=STATE)
    assert type(found) is ComponentMissing
    assert "module 'h3'" in str(found)
    assert "spark.submit.pyFiles" in str(found)
    assert not is_retryable(found)
    assert (
        type(explain_failure(ModuleNotFoundError("No module named 'h3'"), state=STATE)) is ComponentMissing
    ), "also in the query's own process"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            (
                'Exception in thread "main" org.apache.spark.SparkException: When running with master '
                "'yarn' HADOOP_CONF_DIR must be set.\n\tat org"
            ),
            "When running with master 'yarn' HADOOP_CONF_DIR must be set.",
        ),
        (
            "Invalid maximum heap size: -Xmx1q\nError: Could not create the Java Virtual Machine.",
            "Invalid maximum heap size: -Xmx1q",
        ),
    ],
)
def test_settings_with_which_spark_does_not_start_are_not_tried_again(
    tmp_path: Path, words: str, reason: str
) -> None:
    (tmp_path / "spark.log").write_text(f"of an earlier attempt\nWARNING: Using incubator modules\n{words}\n")
    found = explain_failure(Exception(GATEWAY), state=tmp_path)
    assert type(found) is ConfigError
    assert reason in str(found)
    assert "\n" not in str(found)
    assert not is_retryable(found)


def test_a_jvm_that_ended_without_a_reason_is_tried_again(tmp_path: Path) -> None:
    assert is_retryable(explain_failure(Exception(GATEWAY), state=tmp_path))
    (tmp_path / "spark.log").write_text(
        "There is insufficient memory for the Java Runtime Environment to continue.\n"
    )
    assert is_retryable(explain_failure(Exception(GATEWAY), state=tmp_path))


@pytest.mark.parametrize(
    "message",
    [
        (
            "pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
            "version: 3.11 than that in driver: 3.12"
        ),
        "java.lang.ClassNotFoundException: com.example.Codec",
        "AttributeError: Can't get attribute 'Job' on <module 'jobs'>",
    ],
)
def test_what_only_another_installation_mends_is_not_tried_again(message: str) -> None:
    found = explain_failure(
        Exception(f"[STREAM_FAILED] Query failed\n{message}\n\tat org.apache.spark"), state=STATE
    )
    assert type(found) is ComponentMissing
    assert message.partition(": ")[2] in str(found)


def test_a_wrong_password_is_not_tried_again() -> None:
    assert not is_retryable(rebuild_error("LogDenied", "Kafka does not let us in"))
    assert (
        type(explain_failure(Exception(WORKER.replace("OffsetGone", "LogDenied")), state=STATE)) is LogDenied
    )


@pytest.mark.parametrize(
    "message",
    [
        (
            "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: Invalid "
            "username or password"
        ),
        "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed",
        "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [a]",
        "org.apache.hadoop.security.AccessControlException: Client cannot authenticate via:[KERBEROS]",
    ],
)
def test_a_password_that_java_says_is_wrong_is_not_tried_again(message: str) -> None:
    text = (
        "[STREAM_FAILED] Query failed\norg.apache.spark.SparkException: Job aborted\n\tat "
        f"org.apache\nCaused by: {message}\n\tat org.apache"
    )
    found = explain_failure(Exception(text), state=STATE)
    assert type(found) is LogDenied
    assert str(found).startswith(re.sub(r"^[a-z.]+", "", message))
    assert not is_retryable(found)


PY4J = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: {}\n\tat "
    "org.apache.spark.SparkContext.<init>"
)


@pytest.mark.parametrize(
    "message",
    [
        "org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'",
        "java.lang.NumberFormatException: Size must be specified as bytes (b), kibibytes (k)",
        "java.lang.IllegalArgumentException: spark.executor.cores should be positive",
    ],
)
def test_a_session_that_cannot_be_made_of_its_settings_is_not_tried_again(message: str) -> None:
    found = explain_failure(Exception(PY4J.format(message)), state=STATE)
    assert type(found) is ConfigError
    assert message in str(found)


def test_a_session_that_could_not_be_made_by_chance_is_tried_again_and_says_why() -> None:
    found = explain_failure(
        Exception(PY4J.format("java.net.BindException: Cannot assign requested address")), state=STATE
    )
    assert str(found) == "java.net.BindException: Cannot assign requested address"
    assert is_retryable(found)
