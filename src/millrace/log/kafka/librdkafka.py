"""The functions of librdkafka that read messages, called directly.

confluent-kafka makes a Python object of each message. The same library, which that package brings, can fill
an array with the addresses of many messages in one call (`rd_kafka_consume_batch_queue`), and `messages`
makes columns of them. All names here are those of librdkafka's public header, `rdkafka.h`.
"""

import ctypes
import logging
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from functools import lru_cache
from typing import Any

import confluent_kafka.cimpl

_log = logging.getLogger("millrace.kafka")

CONSUMER = 1
_KNOWN_MAJOR_VERSION = 2
ErrorCallback = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
"""`void (*)(rd_kafka_t *, int err, const char *reason, void *opaque)`"""
LogCallback = CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)
"""`void (*)(const rd_kafka_t *, int level, const char *facility, const char *text)`"""

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_assign": (c_int, [c_void_p, c_void_p]),
    "rd_kafka_conf_destroy": (None, [c_void_p]),
    "rd_kafka_conf_new": (c_void_p, []),
    "rd_kafka_conf_set": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t]),
    "rd_kafka_conf_set_error_cb": (None, [c_void_p, ErrorCallback]),
    "rd_kafka_conf_set_log_cb": (None, [c_void_p, LogCallback]),
    "rd_kafka_consume_batch_queue": (c_ssize_t, [c_void_p, c_int, c_void_p, c_size_t]),
    "rd_kafka_consumer_close": (c_int, [c_void_p]),
    "rd_kafka_destroy": (None, [c_void_p]),
    "rd_kafka_header_get_all": (
        c_int,
        [c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_void_p), POINTER(c_size_t)],
    ),
    "rd_kafka_last_error": (c_int, []),
    "rd_kafka_new": (c_void_p, [c_int, c_void_p, c_char_p, c_size_t]),
    "rd_kafka_poll_set_consumer": (c_int, [c_void_p]),
    "rd_kafka_queue_destroy": (None, [c_void_p]),
    "rd_kafka_queue_get_consumer": (c_void_p, [c_void_p]),
    "rd_kafka_set_log_queue": (c_int, [c_void_p, c_void_p]),
    "rd_kafka_topic_partition_list_add": (c_void_p, [c_void_p, c_char_p, c_int32]),
    "rd_kafka_topic_partition_list_destroy": (None, [c_void_p]),
    "rd_kafka_topic_partition_list_new": (c_void_p, [c_int]),
    "rd_kafka_topic_partition_list_set_offset": (c_int, [c_void_p, c_char_p, c_int32, c_int64]),
    "rd_kafka_version": (c_int, []),
}
_SHORT_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_message_destroy": (None, [c_void_p]),
    "rd_kafka_message_errstr": (c_char_p, [c_void_p]),
    "rd_kafka_message_headers": (c_int, [c_void_p, POINTER(c_void_p)]),
    "rd_kafka_message_timestamp": (c_int64, [c_void_p, c_void_p]),
}
"""Functions that wait for nothing. They are called without releasing the GIL, in half the time."""


class Library:
    """The functions, by their names; `AttributeError` if one is missing."""

    def __init__(self, path: str) -> None:
        """`path`: of librdkafka, or of a library that is linked to it."""
        for loader, functions in ((ctypes.CDLL, _FUNCTIONS), (ctypes.PyDLL, _SHORT_FUNCTIONS)):
            library = loader(path)
            for name, (result, arguments) in functions.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)
        self.is_known_version = self.rd_kafka_version() >> 24 == _KNOWN_MAJOR_VERSION

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"librdkafka has no function {name!r}")


@lru_cache(maxsize=1)
def find() -> Library | None:
    """The library that confluent-kafka uses; None, with a line in the log, if it cannot be called directly.

    The extension module of that package is linked to librdkafka, wherever that is. So its functions are found
    through the extension module.
    """
    reason = "addresses have 4 bytes here" if ctypes.sizeof(c_void_p) != 8 else None
    if reason is None:
        try:
            return Library(confluent_kafka.cimpl.__file__)
        except (AttributeError, OSError) as error:
            reason = str(error)
    note_objects(reason)
    return None


@lru_cache(maxsize=16)
def note_objects(reason: str) -> None:
    """Logs that Kafka is read more slowly than it could be, and why; once for each reason."""
    _log.info("reading Kafka an object for each record, which takes twice the CPU: %s", reason)
