from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class VehiclePosition(_message.Message):
    __slots__ = ("vehicle_id", "operator", "latitude", "longitude", "heading", "speed", "acceleration", "delay", "odometer", "doors_open", "route", "direction", "trip_day", "trip_start", "stop", "next_stop")
    VEHICLE_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    LATITUDE_FIELD_NUMBER: _ClassVar[int]
    LONGITUDE_FIELD_NUMBER: _ClassVar[int]
    HEADING_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    ACCELERATION_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    ODOMETER_FIELD_NUMBER: _ClassVar[int]
    DOORS_OPEN_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    TRIP_DAY_FIELD_NUMBER: _ClassVar[int]
    TRIP_START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    NEXT_STOP_FIELD_NUMBER: _ClassVar[int]
    vehicle_id: str
    operator: str
    latitude: float
    longitude: float
    heading: float
    speed: float
    acceleration: float
    delay: int
    odometer: float
    doors_open: bool
    route: str
    direction: int
    trip_day: str
    trip_start: str
    stop: str
    next_stop: str
    def __init__(self, vehicle_id: _Optional[str] = ..., operator: _Optional[str] = ..., latitude: _Optional[float] = ..., longitude: _Optional[float] = ..., heading: _Optional[float] = ..., speed: _Optional[float] = ..., acceleration: _Optional[float] = ..., delay: _Optional[int] = ..., odometer: _Optional[float] = ..., doors_open: _Optional[bool] = ..., route: _Optional[str] = ..., direction: _Optional[int] = ..., trip_day: _Optional[str] = ..., trip_start: _Optional[str] = ..., stop: _Optional[str] = ..., next_stop: _Optional[str] = ...) -> None: ...

class Arrival(_message.Message):
    __slots__ = ("vehicle_id", "operator", "latitude", "longitude", "route", "direction", "trip_day", "trip_start", "stop", "delay", "next_stop")
    VEHICLE_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    LATITUDE_FIELD_NUMBER: _ClassVar[int]
    LONGITUDE_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    TRIP_DAY_FIELD_NUMBER: _ClassVar[int]
    TRIP_START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    NEXT_STOP_FIELD_NUMBER: _ClassVar[int]
    vehicle_id: str
    operator: str
    latitude: float
    longitude: float
    route: str
    direction: int
    trip_day: str
    trip_start: str
    stop: str
    delay: int
    next_stop: str
    def __init__(self, vehicle_id: _Optional[str] = ..., operator: _Optional[str] = ..., latitude: _Optional[float] = ..., longitude: _Optional[float] = ..., route: _Optional[str] = ..., direction: _Optional[int] = ..., trip_day: _Optional[str] = ..., trip_start: _Optional[str] = ..., stop: _Optional[str] = ..., delay: _Optional[int] = ..., next_stop: _Optional[str] = ...) -> None: ...

class Departure(_message.Message):
    __slots__ = ("vehicle_id", "operator", "latitude", "longitude", "route", "direction", "trip_day", "trip_start", "stop", "delay", "next_stop")
    VEHICLE_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    LATITUDE_FIELD_NUMBER: _ClassVar[int]
    LONGITUDE_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    TRIP_DAY_FIELD_NUMBER: _ClassVar[int]
    TRIP_START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    NEXT_STOP_FIELD_NUMBER: _ClassVar[int]
    vehicle_id: str
    operator: str
    latitude: float
    longitude: float
    route: str
    direction: int
    trip_day: str
    trip_start: str
    stop: str
    delay: int
    next_stop: str
    def __init__(self, vehicle_id: _Optional[str] = ..., operator: _Optional[str] = ..., latitude: _Optional[float] = ..., longitude: _Optional[float] = ..., route: _Optional[str] = ..., direction: _Optional[int] = ..., trip_day: _Optional[str] = ..., trip_start: _Optional[str] = ..., stop: _Optional[str] = ..., delay: _Optional[int] = ..., next_stop: _Optional[str] = ...) -> None: ...

class DoorEvent(_message.Message):
    __slots__ = ("vehicle_id", "operator", "latitude", "longitude", "route", "direction", "trip_day", "trip_start", "stop", "open")
    VEHICLE_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    LATITUDE_FIELD_NUMBER: _ClassVar[int]
    LONGITUDE_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    TRIP_DAY_FIELD_NUMBER: _ClassVar[int]
    TRIP_START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    vehicle_id: str
    operator: str
    latitude: float
    longitude: float
    route: str
    direction: int
    trip_day: str
    trip_start: str
    stop: str
    open: bool
    def __init__(self, vehicle_id: _Optional[str] = ..., operator: _Optional[str] = ..., latitude: _Optional[float] = ..., longitude: _Optional[float] = ..., route: _Optional[str] = ..., direction: _Optional[int] = ..., trip_day: _Optional[str] = ..., trip_start: _Optional[str] = ..., stop: _Optional[str] = ..., open: _Optional[bool] = ...) -> None: ...

class VehicleEvent(_message.Message):
    __slots__ = ("vehicle_id", "operator", "kind", "latitude", "longitude", "route", "direction", "trip_day", "trip_start", "stop", "delay", "next_stop")
    VEHICLE_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LATITUDE_FIELD_NUMBER: _ClassVar[int]
    LONGITUDE_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    TRIP_DAY_FIELD_NUMBER: _ClassVar[int]
    TRIP_START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    NEXT_STOP_FIELD_NUMBER: _ClassVar[int]
    vehicle_id: str
    operator: str
    kind: str
    latitude: float
    longitude: float
    route: str
    direction: int
    trip_day: str
    trip_start: str
    stop: str
    delay: int
    next_stop: str
    def __init__(self, vehicle_id: _Optional[str] = ..., operator: _Optional[str] = ..., kind: _Optional[str] = ..., latitude: _Optional[float] = ..., longitude: _Optional[float] = ..., route: _Optional[str] = ..., direction: _Optional[int] = ..., trip_day: _Optional[str] = ..., trip_start: _Optional[str] = ..., stop: _Optional[str] = ..., delay: _Optional[int] = ..., next_stop: _Optional[str] = ...) -> None: ...

class CellCount(_message.Message):
    __slots__ = ("geocell", "count")
    GEOCELL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    geocell: int
    count: int
    def __init__(self, geocell: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class DelayDistribution(_message.Message):
    __slots__ = ("geocell", "count", "p50", "p90", "p99")
    GEOCELL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    P50_FIELD_NUMBER: _ClassVar[int]
    P90_FIELD_NUMBER: _ClassVar[int]
    P99_FIELD_NUMBER: _ClassVar[int]
    geocell: int
    count: int
    p50: int
    p90: int
    p99: int
    def __init__(self, geocell: _Optional[int] = ..., count: _Optional[int] = ..., p50: _Optional[int] = ..., p90: _Optional[int] = ..., p99: _Optional[int] = ...) -> None: ...

class Flow(_message.Message):
    __slots__ = ("geocell", "to", "count")
    GEOCELL_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    geocell: int
    to: int
    count: int
    def __init__(self, geocell: _Optional[int] = ..., to: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class EventCount(_message.Message):
    __slots__ = ("vehicle_id", "count")
    VEHICLE_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    vehicle_id: str
    count: int
    def __init__(self, vehicle_id: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class EmergencyStop(_message.Message):
    __slots__ = ("vehicle_id", "latitude", "longitude", "speed_difference", "deceleration")
    VEHICLE_ID_FIELD_NUMBER: _ClassVar[int]
    LATITUDE_FIELD_NUMBER: _ClassVar[int]
    LONGITUDE_FIELD_NUMBER: _ClassVar[int]
    SPEED_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    DECELERATION_FIELD_NUMBER: _ClassVar[int]
    vehicle_id: str
    latitude: float
    longitude: float
    speed_difference: float
    deceleration: float
    def __init__(self, vehicle_id: _Optional[str] = ..., latitude: _Optional[float] = ..., longitude: _Optional[float] = ..., speed_difference: _Optional[float] = ..., deceleration: _Optional[float] = ...) -> None: ...
