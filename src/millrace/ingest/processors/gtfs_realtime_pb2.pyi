from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FeedMessage(_message.Message):
    __slots__ = ("header", "entity")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    header: FeedHeader
    entity: _containers.RepeatedCompositeFieldContainer[FeedEntity]
    def __init__(self, header: _Optional[_Union[FeedHeader, _Mapping]] = ..., entity: _Optional[_Iterable[_Union[FeedEntity, _Mapping]]] = ...) -> None: ...

class FeedHeader(_message.Message):
    __slots__ = ("timestamp",)
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    def __init__(self, timestamp: _Optional[int] = ...) -> None: ...

class FeedEntity(_message.Message):
    __slots__ = ("id", "is_deleted", "vehicle")
    ID_FIELD_NUMBER: _ClassVar[int]
    IS_DELETED_FIELD_NUMBER: _ClassVar[int]
    VEHICLE_FIELD_NUMBER: _ClassVar[int]
    id: str
    is_deleted: bool
    vehicle: VehiclePosition
    def __init__(self, id: _Optional[str] = ..., is_deleted: _Optional[bool] = ..., vehicle: _Optional[_Union[VehiclePosition, _Mapping]] = ...) -> None: ...

class VehiclePosition(_message.Message):
    __slots__ = ("trip", "position", "current_status", "timestamp", "stop_id", "vehicle")
    TRIP_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CURRENT_STATUS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    STOP_ID_FIELD_NUMBER: _ClassVar[int]
    VEHICLE_FIELD_NUMBER: _ClassVar[int]
    trip: TripDescriptor
    position: Position
    current_status: int
    timestamp: int
    stop_id: str
    vehicle: VehicleDescriptor
    def __init__(self, trip: _Optional[_Union[TripDescriptor, _Mapping]] = ..., position: _Optional[_Union[Position, _Mapping]] = ..., current_status: _Optional[int] = ..., timestamp: _Optional[int] = ..., stop_id: _Optional[str] = ..., vehicle: _Optional[_Union[VehicleDescriptor, _Mapping]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("latitude", "longitude", "bearing", "odometer", "speed")
    LATITUDE_FIELD_NUMBER: _ClassVar[int]
    LONGITUDE_FIELD_NUMBER: _ClassVar[int]
    BEARING_FIELD_NUMBER: _ClassVar[int]
    ODOMETER_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    latitude: float
    longitude: float
    bearing: float
    odometer: float
    speed: float
    def __init__(self, latitude: _Optional[float] = ..., longitude: _Optional[float] = ..., bearing: _Optional[float] = ..., odometer: _Optional[float] = ..., speed: _Optional[float] = ...) -> None: ...

class TripDescriptor(_message.Message):
    __slots__ = ("start_time", "start_date", "route_id", "direction_id")
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    START_DATE_FIELD_NUMBER: _ClassVar[int]
    ROUTE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_ID_FIELD_NUMBER: _ClassVar[int]
    start_time: str
    start_date: str
    route_id: str
    direction_id: int
    def __init__(self, start_time: _Optional[str] = ..., start_date: _Optional[str] = ..., route_id: _Optional[str] = ..., direction_id: _Optional[int] = ...) -> None: ...

class VehicleDescriptor(_message.Message):
    __slots__ = ("id", "label")
    ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    id: str
    label: str
    def __init__(self, id: _Optional[str] = ..., label: _Optional[str] = ...) -> None: ...
