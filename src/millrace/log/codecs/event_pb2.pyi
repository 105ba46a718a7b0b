import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Event(_message.Message):
    __slots__ = ("event_timestamp", "ingestion_timestamp", "details", "pane")
    EVENT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    INGESTION_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    PANE_FIELD_NUMBER: _ClassVar[int]
    event_timestamp: _timestamp_pb2.Timestamp
    ingestion_timestamp: _timestamp_pb2.Timestamp
    details: _any_pb2.Any
    pane: Pane
    def __init__(self, event_timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ingestion_timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., details: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., pane: _Optional[_Union[Pane, _Mapping]] = ...) -> None: ...

class Pane(_message.Message):
    __slots__ = ("window_start", "window_end", "index", "settled_index", "timing", "final", "op")
    WINDOW_START_FIELD_NUMBER: _ClassVar[int]
    WINDOW_END_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SETTLED_INDEX_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    window_start: int
    window_end: int
    index: int
    settled_index: int
    timing: str
    final: bool
    op: str
    def __init__(self, window_start: _Optional[int] = ..., window_end: _Optional[int] = ..., index: _Optional[int] = ..., settled_index: _Optional[int] = ..., timing: _Optional[str] = ..., final: _Optional[bool] = ..., op: _Optional[str] = ...) -> None: ...
